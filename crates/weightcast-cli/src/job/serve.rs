//! `weightcast serve`: the reference server in the foreground.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use weightcast::ServeConfig;

/// Arguments of `serve`.
#[derive(Args)]
pub(crate) struct Serve {
    /// IP:PORT (port 0: any) or unix:/PATH
    #[arg(long, default_value = "127.0.0.1:7700", env = "WEIGHTCAST_ADDRESS")]
    address: String,
    /// File with the token that every client must show; needed beyond loopback. By default one that
    /// only this user can read, whose clients on this host find it by themselves
    #[arg(long, env = "WEIGHTCAST_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// File with a secret that the servers of one job share and no client has: it proves what was
    /// before a failover (default: the token)
    #[arg(long, env = "WEIGHTCAST_TICKET_SECRET_FILE")]
    ticket_secret_file: Option<PathBuf>,
    /// Ask nobody for a token: whoever reaches the address can read and replace weights
    #[arg(long)]
    insecure_no_auth: bool,
    /// Which server of its clients' WEIGHTCAST_SERVER list this is, from 0: all differ
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..1024))]
    index: u32,
    /// Seconds that a silent client keeps its place
    #[arg(long, default_value_t = 5.0, value_parser = positive)]
    lease: f64,
    /// Seconds that unpublish waits for readers before it cuts them off
    #[arg(long, default_value_t = 30.0, value_parser = positive)]
    drain_deadline: f64,
    /// Seconds that the last copy of a retained version is held back to be offloaded; then it is lost
    #[arg(long, default_value_t = 60.0, value_parser = positive)]
    offload_deadline: f64,
    /// Readers on other hosts that one replica serves at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    fanout: u32,
    /// Readers on its own host that a holder serves at a time, which use no link; never fewer than --fanout
    #[arg(long, default_value_t = weightcast::HOST_FANOUT, value_parser = clap::value_parser!(u32).range(1..=1024))]
    host_fanout: u32,
    /// Replicas that one reader draws from at a time, where several have nothing else to do; 1: never several
    #[arg(long, default_value_t = weightcast::STRIPES, value_parser = clap::value_parser!(u32).range(1..=64))]
    stripes: u32,
    /// Stop when nobody has been connected for this many seconds
    #[arg(long, value_parser = positive)]
    idle_exit: Option<f64>,
    /// Serve metrics to Prometheus at IP:PORT (path /metrics) or unix:/PATH. Beyond loopback scrapers
    /// show the token
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Add the spans of groups' calls to this file, for Perfetto, Chrome and `weightcast trace`
    #[arg(long, value_name = "FILE", env = "WEIGHTCAST_TRACE")]
    trace: Option<PathBuf>,
    /// Send the same spans to this OpenTelemetry collector, http://HOST:PORT, over OTLP/gRPC
    #[arg(long, value_name = "URL", env = "WEIGHTCAST_OTLP")]
    otlp: Option<String>,
    /// Keep no directory busy: what starts a server for a job gives it files by their whole paths
    #[arg(long, hide = true)]
    detached: bool,
    /// Check every invariant after every event (slow)
    #[arg(long)]
    paranoid: bool,
    /// Directory for recordings: written when the server gives up, or `weightcast record` asks (default: one of this user)
    #[arg(long, value_name = "DIR")]
    record_dir: Option<PathBuf>,
    /// For tests: give up, as on a bug, once this file exists
    #[arg(long, hide = true)]
    gives_up_at: Option<PathBuf>,
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e7 => Ok(seconds),
        _ => Err("a number of seconds above 0 is needed".to_owned()),
    }
}

/// The server that is asked for, but for what is in files.
fn configured(arguments: Serve) -> ServeConfig {
    ServeConfig {
        address: arguments.address,
        token: None,
        ticket_secret: None,
        insecure: arguments.insecure_no_auth,
        index: arguments.index,
        lease: Duration::from_secs_f64(arguments.lease),
        drain_deadline: Duration::from_secs_f64(arguments.drain_deadline),
        offload_deadline: Duration::from_secs_f64(arguments.offload_deadline),
        fanout: arguments.fanout,
        host_fanout: arguments.host_fanout,
        stripes: arguments.stripes,
        joins_from: weightcast::JOINS_FROM,
        idle_exit: arguments.idle_exit.map(Duration::from_secs_f64),
        metrics: arguments.metrics,
        trace: arguments.trace,
        otlp: arguments.otlp,
        paranoid: arguments.paranoid,
        record_dir: arguments.record_dir,
        gives_up_at: arguments.gives_up_at,
    }
}

pub(crate) fn run(arguments: Serve) -> anyhow::Result<()> {
    super::open_files::allow_all();
    if arguments.detached {
        std::env::set_current_dir("/")?;
    }
    let given = arguments.token_file.clone();
    let token = given.as_deref().map(weightcast::read_token).transpose()?;
    let secret = arguments.ticket_secret_file.as_deref();
    let ticket_secret = secret.map(weightcast::read_token).transpose()?;
    let server = weightcast::serve(ServeConfig { token, ticket_secret, ..configured(arguments) })?;
    // Whoever started it may not listen any more: that is no reason to stop serving.
    let address = server.address();
    let file = server.token_file().or(given.as_deref());
    let file = file.map_or(String::new(), |f| format!(" WEIGHTCAST_TOKEN_FILE={}", f.display()));
    let metrics = server.metrics_address();
    let metrics = metrics.map_or(String::new(), |address| format!("\nmetrics: {address}"));
    let _ = writeln!(
        std::io::stdout(),
        "weightcast reference server on {address}\nclients: export WEIGHTCAST_SERVER={address}{file}{metrics}"
    );
    server.wait().context("the server stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option changes what it names, and nothing else.
    #[test]
    fn options_reach_the_server() {
        #[derive(clap::Parser)]
        struct ServeLine {
            #[command(flatten)]
            serve: Serve,
        }
        let given = |words: &str| {
            let words = ["serve", "--address", "a:1"].into_iter().chain(words.split(' '));
            let line =
                <ServeLine as clap::Parser>::try_parse_from(words.filter(|word| !word.is_empty()));
            format!("{:?}", configured(line.expect("options of serve").serve))
        };
        let seconds = Duration::from_secs_f64;
        let usual = || ServeConfig { address: "a:1".to_owned(), ..ServeConfig::default() };
        for (words, wanted) in [
            ("", usual()),
            ("--insecure-no-auth", ServeConfig { insecure: true, ..usual() }),
            ("--index 1023", ServeConfig { index: 1_023, ..usual() }),
            ("--lease 1.25", ServeConfig { lease: seconds(1.25), ..usual() }),
            ("--drain-deadline 2.5", ServeConfig { drain_deadline: seconds(2.5), ..usual() }),
            ("--offload-deadline 3.5", ServeConfig { offload_deadline: seconds(3.5), ..usual() }),
            ("--fanout 1024", ServeConfig { fanout: 1_024, ..usual() }),
            ("--host-fanout 1024", ServeConfig { host_fanout: 1_024, ..usual() }),
            ("--stripes 64", ServeConfig { stripes: 64, ..usual() }),
            ("--idle-exit 0.25", ServeConfig { idle_exit: Some(seconds(0.25)), ..usual() }),
            (
                "--metrics 127.0.0.1:9",
                ServeConfig { metrics: Some("127.0.0.1:9".into()), ..usual() },
            ),
            ("--trace /t", ServeConfig { trace: Some("/t".into()), ..usual() }),
            ("--otlp http://c:1", ServeConfig { otlp: Some("http://c:1".into()), ..usual() }),
            ("--paranoid", ServeConfig { paranoid: true, ..usual() }),
            ("--record-dir /d", ServeConfig { record_dir: Some("/d".into()), ..usual() }),
            ("--gives-up-at /f", ServeConfig { gives_up_at: Some("/f".into()), ..usual() }),
        ] {
            assert_eq!(given(words), format!("{wanted:?}"), "{words}");
        }
    }

    #[test]
    fn seconds_are_above_nothing_and_not_for_ever() {
        for (text, right) in [
            ("5", Some(5.0)),
            ("0.1", Some(0.1)),
            ("0", None),
            ("-1", None),
            ("9999999", Some(9_999_999.0)),
            ("1e7", None),
            ("1e9", None),
            ("nan", None),
            ("x", None),
        ] {
            assert_eq!(positive(text).ok(), right, "{text}");
        }
    }
}
