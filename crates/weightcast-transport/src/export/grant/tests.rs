use super::*;
use crate::ExportId;
use crate::base::limits::MAX_GRANTS;
use crate::export::table::ExportTable;
use crate::memory::computed::LeftAsItIs;
use crate::piece::extent::Extent;
use crate::piece::filling::Filling;
use crate::wire::HEADER_BYTES;
use crate::wire::write_frame::WriteClaim;
use std::sync::Arc;
use std::sync::mpsc::channel;

const NONCES: Nonces = Nonces { source: [1; 32], reader: [2; 32] };
const DAY: Duration = Duration::from_secs(86_400);

fn region(len: usize) -> Region {
    Region::allocate(len).unwrap()
}

fn terms(regions: &[Region]) -> GrantTerms {
    GrantTerms { generation: 4, regions: regions.to_vec(), writer: None, valid_for: DAY }
}

/// The body of a write by the holder of a grant, as write number `sequence` of [`NONCES`].
fn body(grant: &WriteGrant, generation: u64, sequence: u64) -> Vec<u8> {
    let extents = vec![Extent { region: 0, offset: 0, row_bytes: 1, rows: 1, pitch: 1 }];
    let claim = WriteClaim { grant: grant.id, generation, extents };
    let key = GrantKey::new(&grant.secret);
    let mut frame = Vec::new();
    claim.put(&mut frame, |claimed| key.mac(&NONCES, sequence, claimed));
    frame.push(9);
    frame.split_off(HEADER_BYTES)
}

struct Knock<'a> {
    body: &'a [u8],
    nonces: Nonces,
    sequence: u64,
    host: Option<&'a str>,
    now: Instant,
}

impl Knock<'_> {
    /// How many regions it is let into.
    fn at(&self, grant: &Grant) -> Result<usize, RequestRefusal> {
        let frame = WriteFrame::decode(self.body).unwrap();
        let (nonces, sequence) = (&self.nonces, self.sequence);
        let host = self.host.map(|host| host_of(host.parse().unwrap()));
        let write = GrantedWrite { frame: &frame, nonces, sequence, host };
        grant.admit(&write, self.now).map(|regions| regions.len())
    }
}

#[test]
fn the_writer_is_let_in_and_nobody_else() {
    let (now, regions) = (Instant::now(), [region(3), region(5)]);
    let (grant, half) = Grant::new(terms(&regions), now);
    let (_, other) = Grant::new(terms(&regions), now);
    assert_eq!((half.generation, &half.lens[..]), (4, &[3, 5][..]));
    assert_ne!((half.id, half.secret.expose()), (other.id, other.secret.expose()));
    let own = body(&half, 4, 7);
    let knock = || Knock { body: &own, nonces: NONCES, sequence: 7, host: None, now };
    assert_eq!(knock().at(&grant), Ok(2));
    let forged = body(&WriteGrant { secret: other.secret.clone(), ..half.clone() }, 4, 7);
    let stale = body(&half, 3, 7);
    let elsewhere = Nonces { source: [3; 32], ..NONCES };
    for refused in [
        Knock { body: &forged, ..knock() },
        Knock { body: &stale, ..knock() },
        Knock { nonces: elsewhere, ..knock() },
        Knock { sequence: 8, ..knock() },
        Knock { now: now + DAY, ..knock() },
    ] {
        assert_eq!(refused.at(&grant), Err(RequestRefusal::NotGranted));
    }
    assert_eq!(Knock { now: now + DAY - Duration::from_nanos(1), ..knock() }.at(&grant), Ok(2));
    grant.close();
    assert_eq!(knock().at(&grant), Err(RequestRefusal::NotGranted));
}

/// Where the owner knows the writer's host, the secret is of no use elsewhere.
#[test]
fn a_stolen_secret_is_of_no_use_on_another_host() {
    let now = Instant::now();
    for (writer, host, let_in) in [
        (None, None, true),
        (None, Some("10.0.0.2"), true),
        (Some("10.0.0.1"), Some("10.0.0.1"), true),
        (Some("10.0.0.1"), Some("::ffff:10.0.0.1"), true),
        (Some("2001:db8::1"), Some("2001:db8::9"), true),
        (Some("10.0.0.1"), Some("10.0.0.2"), false),
        (Some("2001:db8::1"), Some("2001:db8:0:1::1"), false),
        (Some("10.0.0.1"), None, false),
    ] {
        let writer = writer.map(|writer: &str| writer.parse().unwrap());
        let (grant, half) = Grant::new(GrantTerms { writer, ..terms(&[region(1)]) }, now);
        let body = body(&half, 4, 0);
        let knock = Knock { body: &body, nonces: NONCES, sequence: 0, host, now };
        assert_eq!(knock.at(&grant).is_ok(), let_in, "{writer:?} {host:?}");
    }
}

#[test]
fn a_life_longer_than_the_clock_ends_with_its_closing_only() {
    let now = Instant::now();
    let (grant, _) = Grant::new(GrantTerms { valid_for: Duration::MAX, ..terms(&[]) }, now);
    assert!(!grant.is_expired(now + 1_000 * DAY));
}

/// Once a close has returned, nothing changes any more.
#[test]
fn a_close_waits_for_the_write_that_is_copied() {
    let now = Instant::now();
    let (grant, half) = Grant::new(terms(&[region(1)]), now);
    let body = body(&half, 4, 0);
    let frame = WriteFrame::decode(&body).unwrap();
    let write = GrantedWrite { frame: &frame, nonces: &NONCES, sequence: 0, host: None };
    let copying = grant.admit(&write, now).unwrap();
    let (closed, told) = channel();
    std::thread::scope(|scope| {
        let grant = &grant;
        scope.spawn(move || {
            grant.close();
            closed.send(()).unwrap();
        });
        (0..100).for_each(|_| std::thread::yield_now());
        assert!(told.try_recv().is_err());
        assert_eq!(copying.len(), 1);
        drop(copying);
        told.recv().unwrap();
    });
    assert!(grant.admit(&write, now).is_err());
}

#[test]
fn spans_that_share_a_byte_overlap() {
    let whole = region(100);
    let part = |from, len| whole.part(from, len).unwrap();
    let spans = Spans::of(&[part(50, 10), part(10, 5), part(12, 30), part(14, 1), part(70, 0)]);
    let overlaps = |from, len| spans.overlap(&part(from, len));
    let touched = (0..100).filter(|at| overlaps(*at, 1));
    assert!(touched.eq((10..42).chain(50..60)));
    assert!(overlaps(0, 11) && !overlaps(0, 10) && overlaps(41, 1) && !overlaps(42, 8));
    assert!(overlaps(42, 9) && overlaps(0, 100) && overlaps(59, 41) && !overlaps(60, 40));
    assert!(!overlaps(20, 0), "nothing is shared with nothing");
    assert!(!Spans::of(&[]).overlap(&whole));
}

#[test]
fn a_grant_is_opened_over_memory_that_is_writable_and_not_served() {
    let table = ExportTable::new();
    let [served, free, fenced, filled] = [(); 4].map(|()| region(10));
    table.expose(1, vec![region(3), served.part(4, 2).unwrap()]);
    let was = table.expose(1, vec![fenced.clone()]);
    table.fence(was);
    let filling = Arc::new(Filling::new(std::slice::from_ref(&filled)));
    table.expose_filling(ExportId(7), 1, vec![filled.clone()], filling);
    let open = |regions: &[Region]| table.open_grant(terms(regions)).map(|grant| grant.lens);
    assert_eq!(open(&[free.clone(), fenced.clone()]), Ok(vec![10, 10]));
    assert_eq!(open(&[]), Ok(vec![]));
    assert_eq!(open(&[served.part(0, 4).unwrap(), served.part(6, 4).unwrap()]), Ok(vec![4, 4]));
    let read_only = Err(GrantError::ReadOnly { region: 1 });
    assert_eq!(open(&[free.clone(), free.clone().read_only()]), read_only);
    assert_eq!(open(&[free.clone(), Region::computed(3, Arc::new(LeftAsItIs))]), read_only);
    let is_served = |region| Err(GrantError::Served { region });
    assert_eq!(open(&[free.clone(), fenced, served.part(5, 5).unwrap()]), is_served(2));
    assert_eq!(open(&[served, free.clone()]), is_served(0));
    assert_eq!(open(&[free, filled]), is_served(1), "whoever fills it writes it already");
    assert_eq!(table.grants(), 3, "what is refused opens nothing");
}

/// Otherwise a published version could change under its readers.
#[test]
fn an_export_ends_the_grants_over_its_bytes() {
    let table = ExportTable::new();
    let (memory, other) = (region(10), region(10));
    let part = |from, len| memory.part(from, len).unwrap();
    let open = |regions: &[Region]| table.open_grant(terms(regions)).unwrap().id;
    let grants = [
        open(&[other.clone(), part(0, 3)]),
        open(&[part(3, 3)]),
        open(&[part(6, 4), other.clone()]),
        open(&[other]),
    ];
    let held = grants.map(|id| table.grant(id).unwrap());
    table.expose(1, vec![part(2, 2)]);
    assert_eq!(grants.map(|id| table.grant(id).is_ok()), [false, false, true, true]);
    let closed = || held.each_ref().map(|grant| grant.regions.read().unwrap().is_none());
    assert_eq!(closed(), [true, true, false, false], "for those that have it in hand, too");
    table.expose_as(ExportId(9), 1, vec![part(9, 1)]);
    assert_eq!(grants.map(|id| table.grant(id).is_ok()), [false, false, false, true]);
    assert!(table.close_grant(grants[3]) && !table.close_grant(grants[3]));
    assert!(!table.close_grant(grants[0]), "it was ended before");
    assert_eq!((table.grants(), closed()), (0, [true; 4]));
}

#[test]
fn so_many_grants_are_open_and_those_that_expired_make_room() {
    let table = ExportTable::new();
    let open = |valid_for| table.open_grant(GrantTerms { valid_for, ..terms(&[]) });
    open(Duration::ZERO).unwrap();
    (0..MAX_GRANTS).for_each(|_| drop(open(DAY).unwrap()));
    assert_eq!(open(DAY).map(drop), Err(GrantError::TooMany { limit: MAX_GRANTS }));
    assert_eq!(table.grants(), MAX_GRANTS, "the first had expired");
}

#[test]
fn a_table_that_is_fenced_grants_nothing_more() {
    let table = ExportTable::new();
    let id = table.open_grant(terms(&[region(1)])).unwrap().id;
    let held = table.grant(id).unwrap();
    table.fence_all();
    assert!(table.grant(id).is_err() && held.regions.read().unwrap().is_none());
}

#[test]
fn a_grant_does_not_tell_its_secret() {
    let (_, half) = Grant::new(terms(&[]), Instant::now());
    let said = format!("{half:?}");
    assert!(said.contains("Secret(..)"), "{said}");
}
