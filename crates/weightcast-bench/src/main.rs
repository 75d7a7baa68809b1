//! The program that `weightcast bench` runs.

fn main() {
    std::process::exit(weightcast_bench::run(std::env::args().collect()));
}
