use super::*;
use crate::message::Call;
use crate::server::Server;
use crate::server::props::{called, server, version};
use crate::server::stores::transaction::GroupTransfer;
use crate::{ContentDigest, Generation, Selector};

/// Groups beside the reader.
const OTHERS: usize = 6;

/// What stands in the books of a group, drawn at random.
#[derive(Clone, Debug, Default)]
struct DrawnGroup {
    datacentre: usize,
    host: usize,
    holds: bool,
    accusers: usize,
    /// The place of the group that it reads from.
    reads: Option<usize>,
    serves: bool,
    odd: bool,
    trainer: bool,
    failures: u32,
    slow: bool,
}

/// All groups, the reader last, and the bounds.
#[derive(Clone, Debug)]
struct DrawnScene {
    groups: Vec<DrawnGroup>,
    fanout: usize,
    host_fanout: usize,
    depth: usize,
    offloading: bool,
}

impl DrawnScene {
    fn draw(mut draw: impl FnMut(usize) -> usize) -> Self {
        let datacentres = 1 + draw(2);
        let mut groups: Vec<DrawnGroup> = Vec::new();
        for place in 0..=OTHERS {
            let mut group = DrawnGroup {
                datacentre: draw(datacentres),
                host: draw(2),
                odd: draw(4) == 0,
                trainer: draw(2) == 0,
                serves: draw(4) != 0,
                ..DrawnGroup::default()
            };
            if place < OTHERS {
                (group.holds, group.slow) = (draw(3) == 0, draw(4) == 0);
                group.accusers = if group.holds { draw(3) / 2 } else { 0 };
                group.failures = [0, 0, 0, 1, 2, 3][draw(6)];
                // From one before it, or from the reader, which may be read while it has no source.
                let from = [place.saturating_sub(1), draw(OTHERS), OTHERS][draw(3)];
                let known = from == OTHERS
                    || (from < place && (groups[from].holds || groups[from].reads.is_some()));
                group.reads = Some(from).filter(|_| known && !group.holds && draw(4) != 0);
            }
            groups.push(group);
        }
        let (fanout, host_fanout) = (1 + draw(2), 1 + draw(4));
        Self { groups, fanout, host_fanout, depth: 1 + draw(4), offloading: draw(3) == 0 }
    }

    fn near(&self, one: usize, other: usize) -> bool {
        self.groups[one].datacentre == self.groups[other].datacentre
    }

    /// The chain from which the version comes to a group, nearest first.
    fn chain(&self, place: usize) -> Vec<usize> {
        std::iter::successors(self.groups[place].reads, |at| self.groups[*at].reads).collect()
    }

    fn readers(&self, source: usize) -> Vec<usize> {
        (0..OTHERS).filter(|place| self.groups[*place].reads == Some(source)).collect()
    }

    fn height(&self, place: usize) -> usize {
        self.readers(place).into_iter().map(|reader| 1 + self.height(reader)).max().unwrap_or(0)
    }

    /// The group gets the version from a holder, and not through the reader.
    fn is_coming(&self, place: usize) -> bool {
        let chain = self.chain(place);
        chain.last().is_some_and(|root| self.groups[*root].holds) && !chain.contains(&OTHERS)
    }

    fn beside(&self, one: usize, other: usize) -> bool {
        self.groups[one].host == self.groups[other].host
    }

    fn has_place(&self, source: usize) -> bool {
        let readers = self.readers(source);
        let way = |reader| (self.near(reader, source), self.beside(reader, source));
        let same_way = |reader: &&usize| way(**reader) == way(OTHERS);
        let places = match self.beside(source, OTHERS) && self.groups[source].holds {
            true => self.fanout.max(self.host_fanout),
            false => self.fanout,
        };
        readers.iter().filter(same_way).count() < places
    }

    fn may_cross(&self) -> bool {
        let settled = (0..OTHERS).any(|place| {
            let group = &self.groups[place];
            let usable = self.near(place, OTHERS) && group.failures < ATTEMPTS_PER_SOURCE;
            let crosses = group.reads.is_some_and(|source| !self.near(place, source));
            (usable && (group.holds || self.is_coming(place)))
                || (self.near(place, OTHERS) && crosses)
        });
        !settled
    }

    fn may_enter(&self) -> bool {
        let settled = (0..OTHERS).any(|place| {
            let group = &self.groups[place];
            let usable = self.beside(place, OTHERS) && group.failures < ATTEMPTS_PER_SOURCE;
            let feeds = self.is_coming(place) && group.odd == self.groups[OTHERS].odd;
            usable && (group.holds || feeds)
        });
        !settled
    }

    /// The choice, and how many there were to choose from.
    fn choose(&self, names: &[String]) -> (Option<Option<usize>>, usize) {
        let (mut busy, mut barred, mut taken) = (false, false, false);
        let mut offers = Vec::new();
        for (place, group) in self.groups[..OTHERS].iter().enumerate() {
            let same_layout = group.odd == self.groups[OTHERS].odd;
            let inner = group.reads.is_some_and(|from| self.beside(place, from));
            let open = self.beside(place, OTHERS) || !inner;
            let relays = self.is_coming(place) && group.serves && same_layout && open;
            if group.failures >= ATTEMPTS_PER_SOURCE || !(group.holds || relays) {
                continue;
            }
            let depth = self.chain(place).len();
            if (!self.may_cross() && !self.near(place, OTHERS))
                || (!self.may_enter() && !self.beside(place, OTHERS))
            {
                barred = true;
            } else if relays && !self.has_place(place) {
                taken = true;
            } else if !self.has_place(place) || depth + 1 + self.height(OTHERS) > self.depth {
                busy = true;
            } else {
                let load = self.readers(place).len();
                let other_host = group.host != self.groups[OTHERS].host;
                let trainer = group.trainer;
                let against = (group.accusers, group.slow, depth, load, other_host, trainer);
                offers.push(((group.failures, against, names[place].clone()), place));
            }
        }
        let waits = (0..OTHERS).any(|place| self.is_coming(place)) || self.offloading;
        let count = offers.len();
        let choice = match offers.into_iter().min() {
            Some(((failures, ..), place)) if failures == 0 || !(busy || taken) => Some(Some(place)),
            Some(_) => Some(None),
            None if busy || barred || waits => Some(None),
            None => None,
        };
        (choice, count)
    }

    /// The same in a server's books.
    fn build(&self, names: &[String]) -> (Server, Vec<Incarnation>) {
        let mut server = server();
        server.config.fanout = self.fanout as u32;
        server.config.host_fanout = self.host_fanout as u32;
        server.config.depth_limit = self.depth as u32;
        let groups: Vec<Incarnation> = names.iter().map(|name| server.prop(name, 1)).collect();
        for (group, drawn) in groups.iter().zip(&self.groups) {
            server.at(*group).role = if drawn.trainer { Role::Trainer } else { Role::Rollout };
            let member = server.at(*group).members.get_mut(&0).unwrap();
            member.location.datacentre = format!("dc{}", drawn.datacentre);
            let layout = ContentDigest([u8::from(drawn.odd); 16]);
            member.registration.as_mut().unwrap().layout = layout;
            server.lies(*group, 0, &format!("host{}", drawn.host));
        }
        let reader = groups[OTHERS];
        // What the reader was to read was its own affair; it looks for another source now.
        server.holds(reader, version(1));
        for (group, drawn) in groups.iter().zip(&self.groups) {
            if drawn.holds {
                server.holds(*group, version(1));
                let accusers = (0..drawn.accusers).map(|n| n.to_string());
                server.at(*group).held.as_mut().unwrap().accusers = accusers.collect();
            }
            if let Some(from) = drawn.reads {
                server.reads(*group, version(1), &[groups[from]]);
                if drawn.serves
                    || self.groups.iter().any(|g| g.reads.map(|p| groups[p]) == Some(*group))
                {
                    server.relays(*group);
                }
            }
            if drawn.slow {
                server.at(reader).slow.insert(*group, 1);
            }
        }
        server.copies().hide(reader);
        server.at(reader).held = None;
        let model = server.models.get_mut("policy").unwrap();
        if self.offloading {
            model.retention.asked.insert(version(1), reader);
        }
        (server, groups)
    }
}

#[test]
fn the_choice_among_any_groups_is_the_one_that_the_rules_say() {
    let mut state = 5u64;
    let mut draw = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let (mut granted, mut chosen, mut busy, mut nobody) = (0, 0, 0, 0);
    for _ in 0..6_000 {
        let mut scene = DrawnScene::draw(&mut draw);
        // Who is read from serves.
        for place in 0..OTHERS {
            scene.groups[place].serves |= !scene.readers(place).is_empty();
        }
        let names: Vec<String> =
            (0..=OTHERS).map(|place| format!("r{}", (place * 3) % 7)).collect();
        let (server, groups) = scene.build(&names);
        let mut transfer = GroupTransfer::default();
        for (group, drawn) in groups.iter().zip(&scene.groups) {
            if drawn.failures > 0 {
                transfer.failures.insert(*group, drawn.failures);
            }
        }
        let (expected, offers) = scene.choose(&names);
        let reader = server.books().group(groups[OTHERS]);
        let call = called(Call::Replicate { selector: Selector::Exact(1) });
        let reader = TransferCtx { reader, call: &call, transfer: &transfer };
        let choice = reader.choose_source(version(1));
        let expected = match expected {
            Some(Some(place)) => Choice::Granted(groups[place]),
            Some(None) => Choice::Busy,
            None => Choice::Nobody,
        };
        assert_eq!(choice, expected, "{scene:#?}");
        match choice {
            Choice::Granted(_) => {
                (granted, chosen) = (granted + 1, chosen + usize::from(offers > 1))
            }
            Choice::Busy => busy += 1,
            Choice::Nobody => nobody += 1,
        }
    }
    let counts = [granted, chosen, busy, nobody];
    assert!(counts.iter().all(|count| *count > 200), "of each enough: {counts:?}");
}

#[test]
fn what_weighs_more_comes_first_whatever_else_speaks_against_a_source() {
    // Each is better than the next in one thing, and worse in all that weigh less.
    let mut server = server();
    let reader = server.prop("reader", 1);
    let sources = ["f", "e", "d", "c", "b", "a"].map(|name| server.prop(name, 1));
    let relay = server.prop("relay", 1);
    for (place, source) in sources.iter().enumerate() {
        server.holds(*source, version(1));
        server.lies(*source, 0, if place < 4 { "away" } else { "" });
        if place > 3 {
            server.at(reader).slow.insert(*source, 1);
        }
        if place == 5 {
            server.at(*source).held.as_mut().unwrap().accusers = ["x".to_owned()].into();
        }
    }
    server.lies(sources[1], 0, "away");
    server.reads(relay, version(1), &[sources[3]]);
    let before = server.clone();
    let of = |source: &Incarnation| &before.groups[source];
    let ranks = sources.map(|source| before.books().group(reader).rank(of(&source), version(1)));
    // The name decides between f, e and d, which are alike; c has a reader, b is slow, a is accused.
    let order = [2, 1, 0, 3, 4, 5];
    assert!(order.is_sorted_by_key(|place| &ranks[*place]), "{ranks:?}");
    server.relays(relay);
    let through = server.books().group(reader).rank(&server.groups[&relay], version(1));
    assert!(through > ranks[3] && through < ranks[4], "a longer chain weighs more than a reader");
    server.lies(sources[0], 0, "");
    let near = server.books().group(reader).rank(&server.groups[&sources[0]], version(1));
    assert!(near < ranks[2], "the same host weighs more than the name");
    assert_eq!(server.groups[&relay].generations(version(1)), Some(vec![Generation(20)]));
}

#[test]
fn a_holder_goes_on_with_what_it_has_while_a_newer_version_is_on_its_way_to_it() {
    use crate::Time;
    use crate::server::stores::seeding::Asked;
    // The version that crosses or was asked for, to where; whether somebody near has what is wanted.
    for (brings, to, near, waits) in [
        (2, "here", false, true),
        (3, "here", false, true),
        (1, "here", false, false),
        (0, "here", false, false),
        (2, "there", false, false),
        (2, "here", true, false),
        (3, "here", true, false),
    ] {
        for asked in [false, true] {
            let mut server = server();
            let [source, reader, seed] = ["source", "reader", "seed"].map(|n| server.prop(n, 1));
            let place = |server: &mut Server, group, at: &str| {
                let member = server.at(group).members.get_mut(&0).unwrap();
                member.location.datacentre = at.to_owned();
            };
            place(&mut server, source, if near { "here" } else { "home" });
            place(&mut server, reader, "here");
            place(&mut server, seed, to);
            server.holds(source, version(2));
            server.holds(reader, version(1));
            if asked {
                let (ask, owner, until) = (1, "seed".to_owned(), Time(9));
                let asked = Asked { ask, version: version(brings), owner, until };
                let model = server.models.get_mut("policy").unwrap();
                model.seeding.asked.insert(to.to_owned(), asked);
            } else {
                let far = server.prop("far", 1);
                place(&mut server, far, "home");
                server.holds(far, version(brings));
                server.reads(seed, version(brings), &[far]);
                assert!(server.edges.crosses(seed));
                if brings == 2 && !near {
                    server.copies().hide(far);
                }
            }
            let waited = server.books().group(reader).waits_for_seed(version(2));
            assert_eq!(waited, waits, "{brings} {to} {asked}");
            server.at(reader).held = None;
            let waited = server.books().group(reader).waits_for_seed(version(2));
            assert!(!waited, "it has nothing to go on with");
        }
    }
}

#[test]
fn a_reader_crosses_if_its_first_source_is_in_another_datacentre() {
    let mut server = server();
    let [near, far, reader] = ["near", "far", "reader"].map(|name| server.prop(name, 1));
    server.at(far).members.get_mut(&0).unwrap().location.datacentre = "far".to_owned();
    for (from, crosses) in [(vec![near], false), (vec![far], true), (vec![near, far], false)] {
        server.transfers().read_from(reader, version(1), from.clone());
        assert_eq!(server.edges.crosses(reader), crosses);
        server.edges.remove("policy", reader);
    }
}
