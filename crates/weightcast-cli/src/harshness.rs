//! Options of `sim` and `replay` that make worlds harsher: a world is the same for both with the same
//! seed and the same options.

use clap::Args;
use serde::Serialize;
use weightcast_protocol::Span;
use weightcast_sim::Harshness;

/// What worlds have in common, whatever their seeds draw.
#[derive(Args, Clone, Serialize)]
pub(crate) struct Harsh {
    /// Reference servers of every world (drawn by default: 1 to 3)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=Harshness::SERVERS as i64))]
    servers: Option<u32>,
    /// Seconds that every call of a program has, from 0.1 to 600 (by default 2.5, some 0.2)
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| between(text, 0.1, 600.0))]
    call_deadline: Option<f64>,
    /// So many times the faults that there would be, from 0 to 100
    #[arg(long, value_name = "TIMES", value_parser = |text: &str| between(text, 0.0, 100.0))]
    fault_rate: Option<f64>,
    /// Draw from the seed what these options do not say: up to 5 servers, deadlines of 0.4 to 8 s, up
    /// to 4 times the faults
    #[arg(long)]
    harsh: bool,
}

impl Harsh {
    pub(crate) fn harshness(&self) -> Harshness {
        let thousandths = |number: f64| (number * 1e3).round() as u32;
        Harshness {
            servers: self.servers,
            call_deadline: self.call_deadline.map(|s| Span::from_millis(thousandths(s).into())),
            fault_rate: self.fault_rate.map(thousandths),
            drawn: self.harsh,
        }
    }

    /// As they were given, to be given again.
    pub(crate) fn arguments(&self) -> String {
        let numbers = [
            self.servers.map(|servers| format!(" --servers {servers}")),
            self.call_deadline.map(|seconds| format!(" --call-deadline {seconds}")),
            self.fault_rate.map(|times| format!(" --fault-rate {times}")),
        ];
        let harsh = self.harsh.then(|| " --harsh".to_owned());
        numbers.into_iter().chain([harsh]).flatten().collect()
    }
}

fn between(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    let fits = (least..=most).contains(&number);
    if fits { Ok(number) } else { Err(format!("it must be between {least} and {most}")) }
}
