//! What the facts mean: pure functions from facts to checks, which their tables test with facts that are made up.

pub(super) mod choice;
pub(super) mod data_port;
pub(super) mod environment;
pub(super) mod limits;
pub(super) mod server;
pub(super) mod token;
pub(super) mod ways;

/// Bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_suits() {
        for (bytes, said) in [
            (0, "0 bytes"),
            (1_023, "1023 bytes"),
            (1_024, "1.0 KiB"),
            ((1 << 20) - 1, "1024.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 40, "1.0 TiB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
