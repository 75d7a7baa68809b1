//! `doctor`: examines this host and its job, and says of each thing whether it is as it should be.
//!
//! [`facts`] looks: at the system, at the environment, at servers and data ports; [`self_test`] moves bytes between two
//! processes. [`judgement`] makes a [`Check`] of each fact, and does nothing else. What would be chosen for a read is
//! found out by the code that chooses: by the server ([`weightcast_protocol::server::Server::preview`]), and by the
//! routes of a reader.

mod check;
mod examination;
mod facts;
mod judgement;
mod self_test;

pub use self::check::{Check, CheckVerdict};
pub use self::examination::{ChoiceOf, Examination};
pub use self::self_test::self_test_reader;

use crate::config::Options;
use crate::error::Error;

/// Examines this host and the job that the options describe. Takes a second or two; a server that does not answer, a
/// few more. Starts no server, and changes nothing; a token of this user is drawn if there is none yet.
///
/// # Errors
/// There is no runtime to ask servers with. All else that does not work is a [`Check`].
pub fn doctor(examination: &Examination, options: &Options) -> Result<Vec<Check>, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::io("start a runtime", error))?;
    let mut checks = judgement::ways::judge(&facts::ways::ways(&examination.program, options));
    checks.extend(judgement::limits::judge(&facts::limits::limits()));
    checks.extend(judgement::environment::judge(&facts::environment::variables()));
    checks.extend(runtime.block_on(of_job(examination, options)));
    Ok(checks)
}

/// The checks of servers, token, data port and choice.
async fn of_job(examination: &Examination, options: &Options) -> Vec<Check> {
    let (origin, started) = facts::server::origin(options);
    let (facts_of_token, token) = match facts::token::token(options, &origin, started) {
        Some((facts, token)) => (Some(facts), token),
        None => (None, None),
    };
    let asked = facts::server::ask(origin, token.as_ref()).await;
    let mut checks = judgement::server::judge(&asked.facts, crate::VERSION);
    if let Some(facts) = facts_of_token {
        checks.extend(judgement::token::judge(&facts, &asked.facts.servers));
    }
    let port = facts::data_port::data_port(options, &asked, token.clone()).await;
    checks.extend(judgement::data_port::judge(&port));
    if let Some(of) = &examination.choice {
        let choice = facts::choice::choice(of, options, &asked, token).await;
        checks.extend(judgement::choice::judge(&choice));
    }
    checks
}
