//! weightcast: the Python binding. Converts, releases the GIL, calls one Rust function.

mod arguments;
mod doctor;
mod engines;
mod errors;
mod exit;
mod handle;
mod layout;
mod listing;
mod logs;
mod machines;
mod metrics;
mod options;
mod plans;
mod pushed;
mod record;
mod server;
mod shared;
mod status;
mod updated;
mod verdict;
mod verify;
mod view;
mod watch;
mod why;

use pyo3::prelude::*;

/// The native half of the `weightcast` package; `weightcast/__init__.py` is the other.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<layout::PyLayout>()?;
    module.add_class::<layout::PyPart>()?;
    module.add_class::<handle::PyHandle>()?;
    module.add_class::<server::PyServer>()?;
    module.add_class::<options::PyOptions>()?;
    module.add_class::<updated::PyUpdated>()?;
    module.add_class::<pushed::PyPushed>()?;
    module.add_class::<pushed::PyPushedShard>()?;
    module.add_class::<pushed::PyPushOutlook>()?;
    module.add_class::<listing::PyListing>()?;
    module.add_class::<verdict::PyVerdict>()?;
    module.add_class::<verdict::PyVerified>()?;
    module.add_class::<verdict::PyDifference>()?;
    module.add_class::<verdict::PyDifferentRange>()?;
    module.add_class::<verdict::PyHeldBy>()?;
    module.add_class::<why::PyWhy>()?;
    module.add_class::<doctor::PyCheck>()?;
    module.add_class::<engines::PyRoutingLease>()?;
    module.add_class::<machines::PyEngineGate>()?;
    module.add_class::<shared::PySharedMemory>()?;
    module.add_class::<view::PyView>()?;
    module.add_class::<machines::PyFleetDriver>()?;
    module.add_function(wrap_pyfunction!(layout::local_slices, module)?)?;
    module.add_function(wrap_pyfunction!(plans::join_layouts, module)?)?;
    module.add_function(wrap_pyfunction!(plans::plan, module)?)?;
    module.add_function(wrap_pyfunction!(plans::explain, module)?)?;
    module.add_function(wrap_pyfunction!(server::serve, module)?)?;
    module.add_function(wrap_pyfunction!(shared::range_is_shared, module)?)?;
    module.add_function(wrap_pyfunction!(status::status, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify, module)?)?;
    module.add_function(wrap_pyfunction!(why::why, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(engines::engines, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::metrics, module)?)?;
    module.add_function(wrap_pyfunction!(metrics::metrics_text, module)?)?;
    module.add_function(wrap_pyfunction!(logs::log_to_queue, module)?)?;
    module.add_function(wrap_pyfunction!(logs::set_log_level, module)?)?;
    module.add_function(wrap_pyfunction!(logs::log_lines, module)?)?;
    module.add_function(wrap_pyfunction!(server::command_line, module)?)?;
    exit::register(module)?;
    errors::add(module)
}
