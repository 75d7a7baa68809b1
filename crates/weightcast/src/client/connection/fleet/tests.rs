//! How long, and whom, a client asks for its fleet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::tests::{FakePort, to};
use super::*;
use crate::convert::fleet_reply;
use crate::wire::FleetReply;

const SOON: Duration = Duration::from_secs(30);

fn answer() -> FleetAnswer {
    FleetAnswer { driver: 9, ..FleetAnswer::default() }
}

fn said(told: Result<FleetAnswer, FleetError>) -> Option<Result<FleetReply, Status>> {
    Some(Ok(fleet_reply(told)))
}

fn refused(code: Code) -> Option<Result<FleetReply, Status>> {
    Some(Err(Status::new(code, "says a test")))
}

fn passive() -> Option<Result<FleetReply, Status>> {
    said(Err(FleetError::Passive))
}

async fn asked(connection: &ServerConnection, deadline: Duration) -> Result<FleetAnswer, Error> {
    connection.ask_fleet("policy", FleetQuestion::State, deadline).await
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_tell_yet_is_asked_again() {
    let no_model = said(Err(FleetError::NoModel { model: "policy".to_owned() }));
    let all = [passive(), no_model, refused(Code::Unavailable), None, said(Ok(answer()))];
    let port = FakePort::telling(all);
    let times = Arc::clone(&port.asked);
    assert_eq!(asked(&to([port]), SOON).await.unwrap(), answer());
    assert_eq!(times.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn the_server_that_the_session_has_turned_to_is_asked() {
    let passives = std::iter::repeat_with(passive).take(100);
    let connection = to([FakePort::telling(passives), FakePort::telling([said(Ok(answer()))])]);
    let turn = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        connection.turn_to(1);
    };
    let (told, ()) = tokio::join!(asked(&connection, SOON), turn);
    assert_eq!(told.unwrap(), answer());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_beyond_the_deadline_and_the_last_failure_is_told() {
    let no_model = || said(Err(FleetError::NoModel { model: "policy".to_owned() }));
    let ports: [(FakePort, &str); 4] = [
        (FakePort::telling(std::iter::repeat_with(passive).take(99)), "is passive"),
        (FakePort::telling(std::iter::repeat_with(no_model).take(99)), "no handle of model policy"),
        (FakePort::default(), "did not answer in time"),
        (
            FakePort::telling(std::iter::repeat_with(|| refused(Code::Unavailable)).take(99)),
            "says a test",
        ),
    ];
    for (port, reason) in ports {
        let start = Instant::now();
        let error = asked(&to([port]), SOON).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let took = start.elapsed();
        assert!(took <= SOON && took + PAUSE_MAX >= SOON, "{took:?}");
    }
    let error = asked(&to([FakePort::default()]), Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("did not answer in time"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_asking_again_does_not_change_is_told_at_once() {
    let nonsense = Some(Ok(FleetReply { reply: None }));
    for (reply, reason) in [
        (refused(Code::Unimplemented), "older than this client"),
        (refused(Code::Unauthenticated), "says a test"),
        (refused(Code::PermissionDenied), "says a test"),
        (refused(Code::InvalidArgument), "says a test"),
        (nonsense, "bug"),
    ] {
        let port = FakePort::telling([reply, said(Ok(answer()))]);
        let times = Arc::clone(&port.asked);
        let error = asked(&to([port]), SOON).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(times.load(Ordering::Relaxed), 1);
    }
}
