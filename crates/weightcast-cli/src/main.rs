//! The `weightcast` command.

fn main() {
    std::process::exit(weightcast_cli::run(std::env::args().collect()));
}
