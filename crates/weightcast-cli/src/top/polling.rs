//! Asks the server again and again, on a thread of its own: keys are heeded while an answer takes its time.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use weightcast::{Options, Status};

/// What the server said, or why nothing was heard of it.
pub(super) type StatusAnswer = Result<Status, String>;

/// Begins to ask. Ends when nobody listens any more.
pub(super) fn start(
    options: Options,
    interval: Duration,
) -> std::io::Result<Receiver<StatusAnswer>> {
    // No answer is made before the last one was taken.
    let (sender, answers) = sync_channel(1);
    std::thread::Builder::new().name("weightcast-top".to_owned()).spawn(move || {
        while sender.send(weightcast::status(&options).map_err(|e| e.to_string())).is_ok() {
            std::thread::sleep(interval);
        }
    })?;
    Ok(answers)
}
