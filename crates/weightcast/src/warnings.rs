//! Collects the warnings that a test's work logs.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Does the work. Returns the warnings of this thread, with their fields.
pub(crate) fn warnings(work: impl FnOnce()) -> Vec<String> {
    let said = Arc::<Mutex<Vec<String>>>::default();
    tracing::subscriber::with_default(WarningsHeard(Arc::clone(&said)), work);
    let said = said.lock().expect("no panic while held");
    said.clone()
}

struct WarningsHeard(Arc<Mutex<Vec<String>>>);

struct WarningText(String);

impl Visit for WarningText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for WarningsHeard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = WarningText(String::new());
        event.record(&mut text);
        self.0.lock().expect("no panic while held").push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
