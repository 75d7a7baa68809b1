//! The queue of calls that wait for a model to change: for a version, a free source or a revision.

use crate::Incarnation;
use crate::server::rooms::CallHandler;

impl CallHandler<'_> {
    /// Gives the group's call its place in the queue. A transfer takes the place that the group's
    /// last transfer left when it ran out of time (L4).
    pub(in crate::server) fn start_waiting(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let is_transfer = group.transfer().is_some();
        let place =
            group.place.take_if(|_| is_transfer).unwrap_or_else(|| self.numbers.next_place());
        group.pending_mut().place = Some(place);
        let model = self.models.of_mut(&group.model);
        model.waiting.insert(place, incarnation);
    }
}

#[cfg(test)]
mod tests {
    use crate::Selector;
    use crate::message::Call;
    use crate::server::Server;
    use crate::server::props::{SEQ, server};

    #[test]
    fn each_call_has_the_next_place_and_a_transfer_the_one_that_was_left_to_it() {
        let mut server = server();
        let [first, second] = ["first", "second"].map(|name| server.prop(name, 1));
        let wait = Call::Describe { selector: Selector::Latest };
        let place = |server: &mut Server, group, transfers: bool| {
            let call = server.has_called(group, wait.clone());
            call.transfer = transfers.then(Default::default);
            server.calls().start_waiting(group);
            server.groups[&group].transactions[&SEQ].place
        };
        assert_eq!(place(&mut server, first, false), Some(1));
        assert_eq!(place(&mut server, second, true), Some(2));
        assert!(server.models["policy"].waiting.iter().eq([(&1, &first), (&2, &second)]));
        server.at(first).place = Some(1);
        assert_eq!(place(&mut server, first, false), Some(3), "only a transfer takes it");
        assert_eq!(server.groups[&first].place, Some(1));
        assert_eq!(place(&mut server, first, true), Some(1));
        assert_eq!(server.groups[&first].place, None, "once");
        assert_eq!(place(&mut server, first, true), Some(4));
    }
}
