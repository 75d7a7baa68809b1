//! The command, by its arguments, output and files.

mod cli;
mod doctor;
#[path = "support/help.rs"]
mod help;
mod options;
mod plan;
mod plan_numbers;
mod plot;
mod program;
mod recordings;
mod replay;
mod scenario;
mod sim;
