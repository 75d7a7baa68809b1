//! Machines of engine updates. They are pure: Python brings their inputs, and does what their outputs say. Structures
//! come and go as JSON, in the form that serde gives their Rust types.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weightcast::Time;
use weightcast::engine_update::{EngineGate, FleetDriver, StepFailure};

use crate::errors::Misuse;

/// The most bytes of one structure: of the largest, a fleet of thousands of engines, with room.
const JSON_BYTES: usize = 16 << 20;

/// Reads an argument of this name.
pub(crate) fn from_json<T: DeserializeOwned>(name: &str, json: &str) -> PyResult<T> {
    if json.len() > JSON_BYTES {
        let got = json.len();
        return Err(Misuse::new_err(format!("{name} has {got} bytes, the limit is {JSON_BYTES}")));
    }
    serde_json::from_str(json).map_err(|error| {
        let what = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
        Misuse::new_err(format!("{name} is no {what} as JSON: {error}"))
    })
}

/// Writes a result.
pub(crate) fn to_json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|error| Misuse::new_err(format!("a result cannot be written as JSON: {error}")))
}

/// The gate in a worker of an engine.
#[pyclass(frozen, name = "EngineGate", module = "weightcast._core")]
pub(crate) struct PyEngineGate(Mutex<EngineGate>);

#[pymethods]
impl PyEngineGate {
    #[new]
    #[pyo3(signature = (life, holds, driver, serving = false))]
    fn new(life: u64, holds: Option<&str>, driver: u64, serving: bool) -> PyResult<Self> {
        let holds = holds.map(|holds| from_json("holds", holds)).transpose()?;
        let gate = EngineGate::new(life, holds, driver, Default::default());
        Ok(Self(Mutex::new(if serving { gate.serving() } else { gate })))
    }

    fn handle_order(&self, order_json: &str) -> PyResult<()> {
        let order = from_json("order_json", order_json)?;
        self.gate().handle_order(order);
        Ok(())
    }

    #[pyo3(signature = (attempt_json, failure = None))]
    fn handle_performed(&self, attempt_json: &str, failure: Option<&str>) -> PyResult<()> {
        let attempt = from_json("attempt_json", attempt_json)?;
        let result = failure.map_or(Ok(Ok(())), |name| failed(name).map(Err))?;
        self.gate().handle_performed(attempt, result);
        Ok(())
    }

    fn handle_slept(&self) {
        self.gate().handle_slept();
    }

    fn handle_woken(&self) {
        self.gate().handle_woken();
    }

    fn poll_output(&self) -> PyResult<Option<String>> {
        let output = self.gate().poll_output();
        output.map(|output| to_json(&output)).transpose()
    }

    fn may_act(&self, attempt_json: &str) -> PyResult<bool> {
        let attempt = from_json("attempt_json", attempt_json)?;
        Ok(self.gate().may_act(attempt))
    }

    fn may_serve(&self) -> bool {
        self.gate().may_serve()
    }

    fn report(&self) -> PyResult<String> {
        to_json(&self.gate().report())
    }

    fn busy(&self) -> f64 {
        std::time::Duration::from_nanos(self.gate().busy().0).as_secs_f64()
    }

    fn stamp(&self) -> PyResult<Option<String>> {
        let stamp = self.gate().stamp();
        stamp.map(|version| to_json(&version)).transpose()
    }
}

impl PyEngineGate {
    /// The machine, for one short call: the GIL is kept.
    fn gate(&self) -> MutexGuard<'_, EngineGate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What drives engines.
#[pyclass(frozen, name = "FleetDriver", module = "weightcast._core")]
pub(crate) struct PyFleetDriver(Mutex<FleetDriver>);

#[pymethods]
impl PyFleetDriver {
    #[new]
    fn new(config_json: &str) -> PyResult<Self> {
        let config = from_json("config_json", config_json)?;
        Ok(Self(Mutex::new(FleetDriver::new(config))))
    }

    fn bring(
        &self,
        now: u64,
        version: Option<&str>,
        engines: BTreeMap<u32, u32>,
    ) -> PyResult<bool> {
        let version = version.map(|version| from_json("version", version)).transpose()?;
        Ok(self.driver().bring(Time(now), version, engines))
    }

    fn handle(&self, now: u64, input_json: &str) -> PyResult<()> {
        let input = from_json("input_json", input_json)?;
        self.driver().handle(Time(now), input);
        Ok(())
    }

    fn handle_timeout(&self, now: u64) {
        self.driver().handle_timeout(Time(now));
    }

    fn poll_output(&self) -> PyResult<Option<String>> {
        let output = self.driver().poll_output();
        output.map(|output| to_json(&output)).transpose()
    }

    fn next_timeout(&self) -> Option<u64> {
        self.driver().next_timeout().map(|time| time.0)
    }

    fn is_idle(&self) -> bool {
        self.driver().is_idle()
    }
}

impl PyFleetDriver {
    /// The machine, for one short call: the GIL is kept.
    fn driver(&self) -> MutexGuard<'_, FleetDriver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A failure by its name.
fn failed(name: &str) -> PyResult<StepFailure> {
    StepFailure::named(name).ok_or_else(|| {
        let known = StepFailure::ALL.map(StepFailure::name).join(", ");
        Misuse::new_err(format!("{name:?} is no failure of a step; there are {known}"))
    })
}
