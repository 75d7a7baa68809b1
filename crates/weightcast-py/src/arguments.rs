//! Arguments of calls: what Python passes, as Rust has it.

use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use weightcast::{Condition, Freshness, Oldest, Quorum, Replica, Selector};

/// A `weightcast.Replica`.
pub(crate) fn replica(given: &Bound<'_, PyAny>) -> PyResult<Replica> {
    let (name, shard): (String, _) = (field(given, "name")?, field(given, "shard")?);
    let mut replica = Replica::new(name, shard, field(given, "num_shards")?);
    replica.datacentre = field(given, "datacentre")?;
    if let Some(host) = field(given, "host")? {
        replica.host = host;
    }
    replica.spot = field(given, "spot")?;
    Ok(replica)
}

/// A field of a dataclass. One of another type is named, as PyO3 names an argument.
fn field<'py, T: FromPyObjectOwned<'py>>(of: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    of.getattr(name)?.extract().map_err(|error: T::Error| {
        let (py, error) = (of.py(), error.into());
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)))
        } else {
            error
        }
    })
}

/// A time span.
pub(crate) fn seconds(deadline: f64) -> PyResult<Duration> {
    /// A year: beyond it clocks overflow, not patience.
    const LONGEST: f64 = 366.0 * 86_400.0;
    if deadline.is_finite() && (0.0..=LONGEST).contains(&deadline) {
        return Ok(Duration::from_secs_f64(deadline));
    }
    Err(PyValueError::new_err(format!("a deadline is 0 to {LONGEST} seconds, not {deadline}")))
}

/// A `weightcast.Selector`.
pub(crate) fn selector(given: &Bound<'_, PyAny>) -> PyResult<Selector> {
    selector_of(&field::<String>(given, "kind")?, field(given, "number")?)
}

fn selector_of(kind: &str, number: u64) -> PyResult<Selector> {
    Ok(match kind {
        "exact" => Selector::Exact(number),
        "latest" => Selector::Latest,
        "latest_minus" => Selector::LatestMinus(number),
        "nth_latest" => Selector::NthLatest(number),
        "at_least" => Selector::AtLeast(number),
        other => return Err(PyValueError::new_err(format!("unknown selector {other:?}"))),
    })
}

/// A `weightcast.Condition`: its kind is that of a selector, or says how old a version may be.
pub(crate) fn condition(given: &Bound<'_, PyAny>) -> PyResult<Condition> {
    let (kind, number): (String, u64) = (field(given, "kind")?, field(given, "number")?);
    let by = field::<Option<u32>>(given, "rollouts")?.map_or(Quorum::All, Quorum::AtLeast);
    Ok(match kind.as_str() {
        "held" => Condition::Held(Freshness { oldest: Oldest::Number(number), by }),
        "fresh" => Condition::Held(Freshness { oldest: Oldest::Behind(number), by }),
        _ => Condition::Available(selector_of(&kind, number)?),
    })
}
