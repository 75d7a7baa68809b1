//! To which engines a router may send requests, asked without opening a session.

use weightcast_protocol::engine_update::RoutingLease;

use super::ServerConnection;
use super::status::PATIENCE;
use crate::config::Options;
use crate::error::Error;

/// The engines that serve a model, as the reference server that acts knows them: one for each engine of which a routing
/// lease runs. Of several servers each is asked in turn.
///
/// # Errors
/// Those of [`status`](super::status::status); [`CallError::Misuse`](weightcast_protocol::CallError::Misuse) if no handle of
/// the model is open.
pub fn engines(options: &Options, model: &str) -> Result<Vec<RoutingLease>, Error> {
    let (servers, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    runtime.block_on(async {
        let connection = ServerConnection::new(&servers, token.as_ref())?;
        of_list(&connection, servers.split(',').count(), model).await
    })
}

/// What the first server of a list says that acts; if none acts, the last failure.
async fn of_list(
    connection: &ServerConnection,
    servers: usize,
    model: &str,
) -> Result<Vec<RoutingLease>, Error> {
    let mut failure = None;
    for index in 0..servers {
        connection.turn_to(index);
        match connection.engines_once(model, PATIENCE).await {
            Ok(answer) => return Ok(answer.engines),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.expect("a list has a server"))
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::Span;
    use weightcast_protocol::engine_update::{RoutingAnswer, RoutingState};
    use weightcast_protocol::server::FleetError;

    use super::super::tests::{FakePort, to};
    use super::*;
    use crate::convert::routing_reply;

    fn port(told: Result<RoutingAnswer, FleetError>) -> FakePort {
        FakePort::telling([Some(Ok(routing_reply(told)))])
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_that_acts_tells_the_routes() {
        let lease = RoutingLease {
            engine: "http://host:8000".to_owned(),
            life: 1,
            state: RoutingState::Admitted,
            version: None,
            left: Span(5),
        };
        let told = RoutingAnswer { lease: Span(9), engines: vec![lease.clone()] };
        let connection = to([port(Err(FleetError::Passive)), port(Ok(told))]);
        assert_eq!(of_list(&connection, 2, "policy").await.unwrap(), [lease]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wrong_is_told() {
        let no_model = FleetError::NoModel { model: "policy".to_owned() };
        let error = of_list(&to([port(Err(no_model))]), 1, "policy").await.unwrap_err();
        assert!(error.to_string().contains("model policy is open"), "{error}");
        let error = of_list(&to([FakePort::default()]), 1, "policy").await.unwrap_err();
        assert!(error.to_string().contains("did not answer in time"), "{error}");
    }
}
