//! weightcast: the Python binding. Converts, releases the GIL, calls one Rust function.

mod errors;
mod exit;
mod handle;
mod layout;
mod server;
mod verify;

use pyo3::prelude::*;

/// The native half of the `weightcast` package; `weightcast/__init__.py` is the other.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<layout::Layout>()?;
    module.add_class::<layout::Part>()?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<server::Server>()?;
    module.add_function(wrap_pyfunction!(layout::local_slices, module)?)?;
    module.add_function(wrap_pyfunction!(server::serve, module)?)?;
    module.add_function(wrap_pyfunction!(server::status_json, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify_json, module)?)?;
    module.add_function(wrap_pyfunction!(server::command_line, module)?)?;
    exit::register(module)?;
    errors::add(module)
}
