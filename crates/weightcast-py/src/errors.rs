//! All Rust errors to Python exceptions, with their fields as attributes.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::prelude::*;
use weightcast::plan::Slice;
use weightcast::{CallError, Cause, Error, Place};

create_exception!(weightcast, WeightcastError, PyException, "Every error of weightcast.");
create_exception!(
    weightcast,
    VersionUnavailable,
    WeightcastError,
    "The version was never published, is gone, or did not come in time."
);
create_exception!(
    weightcast,
    SourceLost,
    WeightcastError,
    "Every source of the version failed while it was read; the memory holds nothing now, or, if the \
     update was staged, what it held."
);
create_exception!(
    weightcast,
    DigestMismatch,
    WeightcastError,
    "The bytes that arrived are not the publisher's; the memory holds nothing now, or, if the update \
     was staged, what it held."
);
create_exception!(
    weightcast,
    ContentMismatch,
    WeightcastError,
    "A version was published twice with different content."
);
create_exception!(
    weightcast,
    LayoutMismatch,
    WeightcastError,
    "Names, dtypes, shapes or slices do not fit together."
);
create_exception!(
    weightcast,
    ServerUnreachable,
    WeightcastError,
    "The reference server did not answer in time, or refused the token."
);
create_exception!(
    weightcast,
    GroupDiverged,
    WeightcastError,
    "The shards of a replica made different calls."
);
create_exception!(
    weightcast,
    GroupBroken,
    WeightcastError,
    "A shard of the replica is gone; close the handle and open it again."
);
create_exception!(weightcast, Timeout, WeightcastError, "The deadline passed.");
create_exception!(
    weightcast,
    InDoubt,
    WeightcastError,
    "Whether a version was committed could not be learned; the memory holds nothing now."
);
create_exception!(
    weightcast,
    NoRoom,
    WeightcastError,
    "A staged update would take more memory than it may; nothing was changed."
);
create_exception!(
    weightcast,
    Misuse,
    WeightcastError,
    "The call makes no sense in the present state, or a setting is wrong; nothing was changed."
);

create_exception!(
    weightcast,
    Unverified,
    WeightcastError,
    "Nothing can be said of what a replica holds: there is none, it moved on, a shard is silent."
);

create_exception!(
    weightcast,
    NoView,
    WeightcastError,
    "Nobody on this host shares the memory of the version; `reasons` has one of each replica there."
);
create_exception!(
    weightcast,
    ViewEnded,
    WeightcastError,
    "The replica whose memory is viewed has given the version up: what was read may be of another."
);

/// Adds the exception classes to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    for (name, class) in [
        ("WeightcastError", py.get_type::<WeightcastError>()),
        ("VersionUnavailable", py.get_type::<VersionUnavailable>()),
        ("SourceLost", py.get_type::<SourceLost>()),
        ("DigestMismatch", py.get_type::<DigestMismatch>()),
        ("ContentMismatch", py.get_type::<ContentMismatch>()),
        ("LayoutMismatch", py.get_type::<LayoutMismatch>()),
        ("ServerUnreachable", py.get_type::<ServerUnreachable>()),
        ("GroupDiverged", py.get_type::<GroupDiverged>()),
        ("GroupBroken", py.get_type::<GroupBroken>()),
        ("Timeout", py.get_type::<Timeout>()),
        ("InDoubt", py.get_type::<InDoubt>()),
        ("NoRoom", py.get_type::<NoRoom>()),
        ("Misuse", py.get_type::<Misuse>()),
        ("Unverified", py.get_type::<Unverified>()),
        ("NoView", py.get_type::<NoView>()),
        ("ViewEnded", py.get_type::<ViewEnded>()),
    ] {
        module.add(name, class)?;
    }
    Ok(())
}

/// An exception of a class, with these fields as attributes. `_core.pyi` lists them by class.
macro_rules! made {
    ($py:ident, $message:ident, $class:ident $(, $field:ident = $value:expr)*) => {{
        let error = $class::new_err($message);
        $( let _ = error.value($py).setattr(stringify!($field), $value); )*
        error
    }};
}

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Call(call) | Error::NobodyHere { error: call, .. } => {
            call_exception(py, call, message)
        }
        Error::Layout(_) | Error::Transform(_) | Error::Plan(_) => LayoutMismatch::new_err(message),
        Error::NoRoom { bytes, limit } => made!(py, message, NoRoom, bytes = bytes, limit = limit),
        Error::NoView { version, host, reasons } => {
            made!(py, message, NoView, version = version, host = host, reasons = reasons)
        }
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Config { .. } | Error::Io { .. } | Error::Transport(_) | Error::Recording(_) => {
            Misuse::new_err(message)
        }
        Error::Unverified { replica, reason } => {
            made!(py, message, Unverified, replica = replica, reason = reason)
        }
        Error::Bug(_) => WeightcastError::new_err(message),
    }
}

fn call_exception(py: Python<'_>, error: CallError, message: String) -> PyErr {
    macro_rules! raise {
        ($($what:tt)*) => { made!(py, message, $($what)*) };
    }
    match error {
        CallError::VersionUnavailable { model, selector, latest } => raise!(
            VersionUnavailable,
            model = model,
            selector = selector.to_string(),
            latest = latest.map(|v| v.number)
        ),
        CallError::SourceLost { version, source_replica, reason } => raise!(
            SourceLost,
            version = version.number,
            source_replica = source_replica,
            reason = reason
        ),
        CallError::DigestMismatch { version, source_replica, detail } => raise!(
            DigestMismatch,
            version = version.number,
            source_replica = source_replica,
            detail = detail
        ),
        CallError::ContentMismatch { version, replica, detail } => {
            raise!(ContentMismatch, version = version.number, replica = replica, detail = detail)
        }
        CallError::LayoutMismatch { replica, detail } => {
            raise!(LayoutMismatch, replica = replica, detail = detail)
        }
        CallError::GroupDiverged { replica, seq, shard_a, call_a, shard_b, call_b } => raise!(
            GroupDiverged,
            replica = replica,
            seq = seq.0,
            shards = (shard_a, shard_b),
            calls = (call_a, call_b)
        ),
        CallError::GroupBroken { replica, reason } => {
            raise!(GroupBroken, replica = replica, reason = reason)
        }
        CallError::Timeout { call, waiting_for, detail } => {
            raise!(Timeout, call = call, waiting_for = waiting_for, detail = detail)
        }
        CallError::ServerUnreachable { server, reason } => {
            raise!(ServerUnreachable, server = server, reason = reason)
        }
        CallError::InDoubt { version } => raise!(InDoubt, version = version.number),
        CallError::Limit { what, limit, got } => {
            raise!(Misuse, what = what, limit = limit, got = got)
        }
        CallError::Misuse { .. } => raise!(Misuse),
    }
}

/// Where a `DigestMismatch` is, as attributes; `None` where it is not known.
pub(crate) fn locate(py: Python<'_>, error: &PyErr, place: Option<Place>) {
    if !error.is_instance_of::<DigestMismatch>(py) {
        return;
    }
    let cause = place.as_ref().map(|place| match place.cause {
        Cause::Source => "source",
        Cause::Transfer => "transfer",
        Cause::Reader => "reader",
    });
    let ranges = |slice: &Slice| -> Vec<(u64, u64)> {
        (0..slice.ndim()).map(|dim| (slice.start[dim], slice.end(dim))).collect()
    };
    let value = error.value(py);
    let _ = value.setattr("cause", cause);
    let _ = value.setattr("slice", place.as_ref().map(|place| ranges(&place.slice)));
    let _ = value.setattr("source_shard", place.as_ref().and_then(|place| place.source_shard));
    let _ = value.setattr("tensor", place.map(|place| place.tensor));
}
