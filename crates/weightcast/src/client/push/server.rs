//! What the server is asked for a push, by threads that are not the control thread.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use weightcast_plan::Layout;
use weightcast_protocol::ContentDigest;

use crate::client::connection::ServerConnection;
use crate::client::handle_state::HandleState;
use crate::client::reading::fetch_layouts;
use crate::error::Error;

/// How long the server may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Layouts by their names, from memory or from the server.
///
/// # Errors
/// They did not come within `patience`.
pub(in crate::client) fn layouts(
    state: &Arc<HandleState>,
    names: &[ContentDigest],
    patience: Duration,
) -> Result<Vec<Arc<Layout>>, Error> {
    let (from, wanted) = (Arc::clone(state), names.to_vec());
    ask(state, patience, move |connection| async move {
        fetch_layouts(&connection, &from, &wanted).await
    })
}

/// Asks the server something, from a thread that is not the control thread.
///
/// # Errors
/// No answer within `patience`, as after the handle's end.
pub(in crate::client) fn ask<T, F>(
    state: &Arc<HandleState>,
    patience: Duration,
    question: impl FnOnce(ServerConnection) -> F,
) -> Result<T, Error>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send + 'static,
{
    let closed = || Error::misuse("the server did not answer in time, or the handle is closed");
    let (connection, runtime) = state.push.server.get().ok_or_else(closed)?;
    let (reply, answer) = mpsc::channel();
    let question = question(connection.clone());
    runtime.spawn(async move {
        let _ = reply.send(question.await);
    });
    answer.recv_timeout(patience).map_err(|_| closed())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::push::scene::{BASE, PushScene, base};

    #[test]
    fn layouts_come_in_the_order_in_which_they_were_named() {
        let scene = PushScene::target();
        let named = |names: &[ContentDigest]| layouts(&scene.state, names, ANSWER).unwrap();
        assert_eq!(named(&BASE), base());
        assert_eq!(named(&[BASE[1], BASE[1]]), [base()[1].clone(), base()[1].clone()]);
        assert!(named(&[]).is_empty());
    }

    #[test]
    fn nobody_waits_longer_than_asked_for_a_server_that_is_silent() {
        let scene = PushScene::target();
        let unknown = [ContentDigest([77; 16])];
        let alone = HandleState::alone(None, None);
        for (state, patience) in [(&scene.state, Duration::from_millis(1)), (&alone, ANSWER)] {
            let refused = layouts(state, &unknown, patience).unwrap_err().to_string();
            assert!(refused.contains("did not answer in time"), "{refused}");
        }
    }
}
