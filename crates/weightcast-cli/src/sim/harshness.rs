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

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct GivenHarsh {
        #[command(flatten)]
        harsh: Harsh,
    }

    /// As it would be given on the command line.
    pub(crate) fn given(words: &str) -> Option<Harsh> {
        let words = std::iter::once("sim").chain(words.split_ascii_whitespace());
        GivenHarsh::try_parse_from(words).ok().map(|given| given.harsh)
    }

    #[test]
    fn numbers_are_taken_up_to_their_ends() {
        let most = Harshness::SERVERS;
        for (option, taken, refused) in [
            (
                "servers",
                vec!["1".to_owned(), most.to_string()],
                vec!["0".to_owned(), (most + 1).to_string()],
            ),
            ("call-deadline", words("0.1 5 600"), words("0.099 600.001 0 nan inf x")),
            ("fault-rate", words("0 1 100"), words("-0.001 100.001 nan inf x")),
        ] {
            for number in taken {
                assert!(given(&format!("--{option}={number}")).is_some(), "{option} {number}");
            }
            for number in refused {
                assert!(given(&format!("--{option}={number}")).is_none(), "{option} {number}");
            }
        }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    /// What is said of a world can be said again, and means the same world.
    #[test]
    fn options_are_told_as_they_can_be_given() {
        for servers in [None, Some(1), Some(4)] {
            for (deadline, millis) in
                [(None, None), (Some("1.001"), Some(1_001)), (Some("7"), Some(7_000))]
            {
                for (rate, thousandths) in
                    [(None, None), (Some("0"), Some(0)), (Some("2.5"), Some(2_500))]
                {
                    for drawn in [false, true] {
                        let text: String = [
                            servers.map(|n: u32| format!(" --servers {n}")),
                            deadline.map(|s| format!(" --call-deadline {s}")),
                            rate.map(|times| format!(" --fault-rate {times}")),
                            drawn.then(|| " --harsh".to_owned()),
                        ]
                        .into_iter()
                        .flatten()
                        .collect();
                        let harsh = given(&text).expect("options");
                        assert_eq!(harsh.arguments(), text);
                        let wanted = Harshness {
                            servers,
                            call_deadline: millis.map(Span::from_millis),
                            fault_rate: thousandths,
                            drawn,
                        };
                        assert_eq!(harsh.harshness(), wanted, "{text}");
                    }
                }
            }
        }
    }
}
