//! Figures for people.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A figure by which nothing is decided. `{:?}` leaves the figure out: servers that differ in figures
/// alone behave alike, and are one state to the explorer. A recording leaves the figure out as well.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::server) struct Observed<T>(pub(in crate::server) T);

impl<T> fmt::Debug for Observed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observed")
    }
}

impl<T> Serialize for Observed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_unit()
    }
}

impl<'de, T: Default> Deserialize<'de> for Observed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <()>::deserialize(from).map(|()| Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::props::{CATALOG, server, version};
    use crate::server::stores::model::Content;
    use crate::{Span, Time};

    #[test]
    fn figures_do_not_tell_servers_apart() {
        let mut server = server();
        let group = server.prop("g", 1);
        let content = Content { catalog: CATALOG, sum: None, since: Observed(Time(0)) };
        server.copies().remember("policy", version(1), content);
        server.holds(group, version(1));
        server.settle(Time(1));
        let before = format!("{server:?}");
        server.durations.0.add("update", "ok", Span(7));
        let model = server.models.get_mut("policy").expect("a prop's");
        model.latest_since.0 = Some((version(1), Time(9)));
        model.known.get_mut(&version(1)).expect("remembered").since.0 = Time(9);
        assert_eq!(format!("{server:?}"), before);
    }
}
