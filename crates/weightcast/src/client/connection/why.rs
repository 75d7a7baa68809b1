//! Why a replica waits, asked of the server that acts.

use weightcast_protocol::CallError;

use super::ServerConnection;
use super::status::{PATIENCE, of_list};
use crate::config::Options;
use crate::error::Error;
use crate::wire::{WhyRequest, WhyStatus};

/// What a replica's call waits for, who holds the call up, and what ends the wait; or that the replica waits for nothing.
/// Without `model`, the name may be of any model.
///
/// # Errors
/// Those of [`status`](super::status::status); [`CallError::Misuse`] if no replica has the name, or replicas of several
/// models have it.
pub fn why(options: &Options, model: Option<&str>, replica: &str) -> Result<WhyStatus, Error> {
    let (server, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    runtime.block_on(async {
        let connection = ServerConnection::new(&server, token.as_ref())?;
        of_list(&connection, &server).await?;
        let request = WhyRequest { model: model.map(str::to_owned), replica: replica.to_owned() };
        told(&connection, &server, request).await
    })
}

/// The answer of the server that the connection leads to.
async fn told(
    connection: &ServerConnection,
    servers: &str,
    request: WhyRequest,
) -> Result<WhyStatus, Error> {
    let asked = tokio::time::timeout(PATIENCE, connection.why(request)).await;
    let late = |_| {
        let reason = format!("no answer within {PATIENCE:?}");
        CallError::ServerUnreachable { server: servers.to_owned(), reason }
    };
    let reply = asked.map_err(late)??;
    match (reply.problem, reply.why) {
        (Some(detail), _) => Err(CallError::Misuse { detail }.into()),
        (None, Some(why)) => Ok(why),
        (None, None) => Err(Error::Bug("an answer without a sentence".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::tests::{FakePort, to, whole};
    use super::*;
    use crate::wire::WhyReply;

    async fn said(reply: Option<WhyReply>) -> Result<WhyStatus, Error> {
        let answers = reply.map(|reply| whole(&reply.encode_to_vec()));
        let request = WhyRequest { model: None, replica: "r".to_owned() };
        told(&to([FakePort::saying(answers)]), "http://server", request).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_is_the_sentence_or_what_is_wrong_with_the_question() {
        let why = WhyStatus { sentence: "it waits".to_owned(), ..WhyStatus::default() };
        let reply = WhyReply { why: Some(why.clone()), problem: None };
        assert_eq!(said(Some(reply)).await.unwrap(), why);
        let problem = Some("no replica r is known".to_owned());
        let error = said(Some(WhyReply { problem, why: None })).await.unwrap_err();
        assert_eq!(error.to_string(), "no replica r is known");
        assert!(matches!(said(Some(WhyReply::default())).await, Err(Error::Bug(_))));
        let error = said(None).await.unwrap_err().to_string();
        assert!(error.contains("http://server") && error.contains("no answer"), "{error}");
    }
}
