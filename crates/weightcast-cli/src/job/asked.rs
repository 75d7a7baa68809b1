//! The arguments that name the server of a job.

use std::path::PathBuf;

use clap::Args;
use weightcast::{Options, Role};

/// The server of a job.
#[derive(Args)]
pub(crate) struct JobServer {
    /// http://HOST:PORT or unix:/PATH
    #[arg(long, env = "WEIGHTCAST_SERVER")]
    server: Option<String>,
    /// File with the token
    #[arg(long, env = "WEIGHTCAST_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Without a server: the job whose processes have started one on this host; WEIGHTCAST_JOB, the
    /// Slurm job or this directory's by default
    #[arg(long)]
    job: Option<String>,
}

impl JobServer {
    /// A name of the server for people.
    pub(crate) fn name(&self) -> String {
        match (&self.server, &self.job) {
            (Some(server), _) => server.clone(),
            (None, Some(job)) => format!("the server of job {job}"),
            (None, None) => "the server of this job".to_owned(),
        }
    }

    /// The options with which a client finds the server.
    pub(crate) fn options(self) -> Options {
        let Self { server, token_file, job } = self;
        Options { server, token_file, job, ..Options::new(Role::Rollout) }
    }
}
