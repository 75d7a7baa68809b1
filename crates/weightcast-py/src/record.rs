//! Frozen classes of named values: they compare, hash, print and pickle as frozen dataclasses do.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Defines a frozen class. First the module and the name that Python shows, the Rust name, and the
/// arguments of the constructor (the fields in their order, with defaults); then the fields, whose
/// documentation Python shows too; then further methods.
macro_rules! record {
    (
        $(#[$doc:meta])*
        class $module:literal.$name:literal = $rust:ident($($signature:tt)*) {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        }
        $($methods:tt)*
    ) => {
        $(#[$doc])*
        #[pyclass(frozen, get_all, name = $name, module = $module)]
        pub(crate) struct $rust {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }

        #[pymethods]
        impl $rust {
            /// The fields in their order: what a pattern matches by position.
            #[classattr]
            #[pyo3(name = "__match_args__")]
            const FIELDS: crate::record::FieldNames =
                crate::record::FieldNames(&[$(stringify!($field)),*]);

            #[new]
            #[pyo3(signature = ($($signature)*))]
            #[allow(clippy::too_many_arguments)]
            fn new($($field: $type),*) -> Self {
                Self { $($field),* }
            }

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                crate::record::repr(slf, $name, &Self::FIELDS)
            }

            fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<bool> {
                let fields = &Self::FIELDS;
                crate::record::values(slf, fields)?.eq(crate::record::values(other, fields)?)
            }

            fn __hash__(slf: &Bound<'_, Self>) -> PyResult<isize> {
                crate::record::values(slf, &Self::FIELDS)?.hash()
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> PyResult<(Bound<'py, pyo3::types::PyType>, Bound<'py, pyo3::types::PyTuple>)> {
                Ok((slf.get_type(), crate::record::values(slf, &Self::FIELDS)?))
            }

            $($methods)*
        }
    };
}
pub(crate) use record;

/// Names of fields; a tuple in Python.
#[derive(Clone, Copy)]
pub(crate) struct FieldNames(pub(crate) &'static [&'static str]);

impl<'py> IntoPyObject<'py> for FieldNames {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0)
    }
}

/// The values of all fields.
pub(crate) fn values<'py, T>(
    record: &Bound<'py, T>,
    fields: &FieldNames,
) -> PyResult<Bound<'py, PyTuple>> {
    let values: PyResult<Vec<_>> =
        fields.0.iter().map(|field| record.as_any().getattr(*field)).collect();
    PyTuple::new(record.py(), values?)
}

/// `Name(field=value, ...)`.
pub(crate) fn repr<T>(record: &Bound<'_, T>, name: &str, fields: &FieldNames) -> PyResult<String> {
    let mut shown = Vec::with_capacity(fields.0.len());
    for field in fields.0 {
        shown.push(format!("{field}={}", record.as_any().getattr(*field)?.repr()?));
    }
    Ok(format!("{name}({})", shown.join(", ")))
}
