//! Bytes under way: one flow for each shard that reads.

use std::collections::BTreeSet;

use weightcast_protocol::Time;

use super::links::{NetworkLink, max_min};

/// The read of one shard.
#[derive(Clone, Debug)]
struct Flow {
    path: Vec<usize>,
    /// Bytes that had arrived at `since`.
    done: f64,
    /// Bytes that are asked for in all.
    goal: f64,
    rate: f64,
    since: Time,
    /// Whether bytes are under way.
    runs: bool,
    /// Bytes of a unit of progress; a watched flow tells of every unit.
    unit: f64,
    watched: bool,
    /// Bytes that will have arrived at the planned end.
    mark: f64,
    /// Number of the planned end. Ends of other numbers are void.
    plan: u64,
}

impl Flow {
    fn done(&self, now: Time) -> f64 {
        let more = self.rate * (now - self.since).0 as f64;
        (self.done + more).min(self.goal)
    }
}

/// When a flow will have brought everything that was asked for, or its next unit if it is watched,
/// unless something changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) at: Time,
    pub(super) reader: usize,
    pub(super) plan: u64,
}

/// All flows, by the worker that reads.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) links: Vec<NetworkLink>,
    flows: Vec<Option<Flow>>,
    /// Flows that run, by link.
    users: Vec<BTreeSet<usize>>,
    plans: u64,
    /// Ends that are to be planned.
    pub(super) ends: Vec<End>,
}

impl Flows {
    pub(super) fn new(links: Vec<NetworkLink>, workers: usize) -> Self {
        let users = vec![BTreeSet::new(); links.len()];
        Self { links, flows: vec![None; workers], users, ..Self::default() }
    }

    /// Opens a flow on this path; no bytes are asked for yet.
    pub(super) fn open(
        &mut self,
        now: Time,
        reader: usize,
        path: Vec<usize>,
        unit: u64,
        watched: bool,
    ) {
        let (done, goal, mark, rate, unit) = (0.0, 0.0, 0.0, 0.0, unit as f64);
        let (since, runs, plan) = (now, false, 0);
        self.flows[reader] =
            Some(Flow { path, done, goal, rate, since, runs, unit, watched, mark, plan });
    }

    /// Tells of every unit of a flow from now on.
    pub(super) fn watch(&mut self, now: Time, reader: usize) {
        let Some(flow) = &mut self.flows[reader] else { return };
        if !std::mem::replace(&mut flow.watched, true) && flow.runs {
            (flow.done, flow.since) = (flow.done(now), now);
            self.plan_end(reader);
        }
    }

    /// Asks for this many bytes in all.
    pub(super) fn ask(&mut self, now: Time, reader: usize, goal: f64) {
        let Some(flow) = &mut self.flows[reader] else { return };
        if goal <= flow.goal {
            return;
        }
        flow.done = flow.done(now);
        (flow.goal, flow.since) = (goal, now);
        if std::mem::replace(&mut flow.runs, true) {
            self.plan_end(reader);
        } else {
            let path = flow.path.clone();
            path.iter().for_each(|link| _ = self.users[*link].insert(reader));
            self.share(now, &path);
        }
    }

    /// Bytes that have arrived.
    pub(super) fn done(&self, now: Time, reader: usize) -> f64 {
        self.flows[reader].as_ref().map_or(0.0, |flow| flow.done(now))
    }

    /// A planned end has come. False if the plan is void.
    pub(super) fn reached(&mut self, now: Time, end: End) -> bool {
        let Some(flow) = &mut self.flows[end.reader] else { return false };
        if flow.plan != end.plan {
            return false;
        }
        (flow.done, flow.since) = (flow.mark, now);
        if flow.done < flow.goal {
            self.plan_end(end.reader);
        } else {
            self.stop(now, end.reader);
        }
        true
    }

    /// Ends a flow. Returns how many bytes have arrived, and the path.
    pub(super) fn close(&mut self, now: Time, reader: usize) -> Option<(f64, Vec<usize>)> {
        let flow = self.flows[reader].as_mut()?;
        flow.done = flow.done(now);
        flow.since = now;
        flow.goal = flow.done;
        if flow.runs {
            self.stop(now, reader);
        }
        self.flows[reader].take().map(|flow| (flow.done, flow.path))
    }

    fn stop(&mut self, now: Time, reader: usize) {
        let flow = self.flows[reader].as_mut().expect("it runs");
        (flow.runs, flow.rate, flow.plan) = (false, 0.0, 0);
        let path = flow.path.clone();
        path.iter().for_each(|link| _ = self.users[*link].remove(&reader));
        self.share(now, &path);
    }

    /// Computes rates anew after the flows of these links have changed: for all flows that share a
    /// link with them, directly or through other flows.
    fn share(&mut self, now: Time, path: &[usize]) {
        let mut links: BTreeSet<usize> = path.iter().copied().collect();
        let mut found: Vec<usize> = path.to_vec();
        let mut readers = BTreeSet::new();
        while let Some(link) = found.pop() {
            for reader in &self.users[link] {
                if readers.insert(*reader) {
                    let flow = self.flows[*reader].as_ref().expect("it runs");
                    found.extend(flow.path.iter().filter(|link| links.insert(**link)));
                }
            }
        }
        let flow = |reader: &usize| self.flows[*reader].as_ref().expect("it runs");
        let paths: Vec<&[usize]> = readers.iter().map(|r| flow(r).path.as_slice()).collect();
        let rates = max_min(&|link| self.links[link].rate, &paths);
        for (reader, rate) in readers.into_iter().zip(rates) {
            let flow = self.flows[reader].as_mut().expect("it runs");
            if flow.rate != rate {
                flow.done = flow.done(now);
                (flow.since, flow.rate) = (now, rate);
                self.plan_end(reader);
            }
        }
    }

    fn plan_end(&mut self, reader: usize) {
        self.plans += 1;
        let flow = self.flows[reader].as_mut().expect("it runs");
        flow.plan = self.plans;
        let next = ((flow.done / flow.unit).floor() + 1.0) * flow.unit;
        flow.mark = if flow.watched { next.min(flow.goal) } else { flow.goal };
        let left = ((flow.mark - flow.done) / flow.rate).ceil() as u64;
        let at = Time(flow.since.0 + left);
        self.ends.push(End { at, reader, plan: self.plans });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(rates: &[f64], workers: usize) -> Flows {
        let link = |rate: &f64| NetworkLink { name: String::new(), rate: *rate, bytes: 0.0 };
        Flows::new(rates.iter().map(link).collect(), workers)
    }

    /// Plays until no flow runs. Returns when each end was reached, and by which reader.
    fn drain(flows: &mut Flows) -> Vec<(u64, usize)> {
        let mut ended = Vec::new();
        let mut planned = BTreeSet::new();
        loop {
            planned.extend(flows.ends.drain(..).map(|end| (end.at, end.reader, end.plan)));
            let Some((at, reader, plan)) = planned.pop_first() else { return ended };
            if flows.reached(at, End { at, reader, plan }) {
                ended.push((at.0, reader));
            }
        }
    }

    #[test]
    fn what_one_leaves_the_other_takes() {
        let mut flows = flows(&[10.0], 2);
        for (reader, bytes) in [(0, 100.0), (1, 200.0)] {
            flows.open(Time(0), reader, vec![0], 1, false);
            flows.ask(Time(0), reader, bytes);
        }
        // Half of the rate each until 20, then all of it: 100 more in 10.
        assert_eq!(drain(&mut flows), [(20, 0), (30, 1)]);
    }

    #[test]
    fn asking_for_more_goes_on_without_a_pause() {
        let mut flows = flows(&[10.0], 1);
        flows.open(Time(0), 0, vec![0], 1, false);
        flows.ask(Time(0), 0, 50.0);
        flows.ask(Time(2), 0, 100.0);
        assert_eq!(flows.done(Time(2), 0), 20.0);
        assert_eq!(drain(&mut flows), [(10, 0)]);
        assert_eq!(flows.close(Time(20), 0).map(|(done, _)| done), Some(100.0));
    }

    #[test]
    fn a_flow_that_is_watched_tells_of_every_unit() {
        let mut flows = flows(&[10.0], 1);
        flows.open(Time(0), 0, vec![0], 40, false);
        flows.ask(Time(0), 0, 100.0);
        flows.watch(Time(1), 0);
        assert_eq!(drain(&mut flows), [(4, 0), (8, 0), (10, 0)]);
    }

    #[test]
    fn a_flow_that_is_closed_frees_its_links() {
        let mut flows = flows(&[10.0, 10.0], 2);
        flows.open(Time(0), 0, vec![0], 1, false);
        flows.open(Time(0), 1, vec![0, 1], 1, false);
        flows.ask(Time(0), 0, 100.0);
        flows.ask(Time(0), 1, 100.0);
        assert_eq!(flows.close(Time(10), 0).map(|(done, _)| done), Some(50.0));
        assert_eq!(drain(&mut flows), [(15, 1)]);
    }
}
