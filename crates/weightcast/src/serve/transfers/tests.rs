//! How many large transfers are on their way at a time, and for how long.

use super::*;

const HERE: ClientOrigin = ClientOrigin::Process(1);

fn room() -> (FairQueue, Transfers) {
    let transfers = Transfers::new();
    (transfers.readers.clone(), transfers)
}

async fn lent(transfers: &Transfers, stored: &Arc<[u8]>) -> TransferPages {
    let turns = Turns::new(HERE);
    let turn = (turns.to_be_sent().await.unwrap(), transfers.to_lend(&turns).await.unwrap());
    send(turn, Sent::Stored(Arc::downgrade(stored)), |size, data| (size, data.len()))
}

type TransferPages = ReceiverStream<Result<(u64, usize), Status>>;

#[tokio::test]
async fn small_manifests_have_a_line_of_their_own() {
    let (transfers, turns) = (Transfers::new(), Turns::new(HERE));
    let free = || [&transfers.small_uploads, &transfers.large_uploads].map(FairQueue::free);
    let all = free();
    for (size, taken) in [(SMALL_MANIFEST_BYTES, [1, 0]), (SMALL_MANIFEST_BYTES + 1, [0, 1])] {
        let first = ManifestPage { size: size as u64, ..ManifestPage::default() };
        let share = transfers.to_receive(&turns, &first).await.unwrap();
        let room = size + STREAM_WINDOW as usize;
        assert_eq!(free(), [all[0] - taken[0] * room, all[1] - taken[1] * room], "{size}");
        drop(share);
    }
    assert_eq!(free(), all);
}

#[tokio::test]
async fn a_reader_takes_the_same_room_whatever_it_reads() {
    let (readers, transfers) = room();
    let large: Arc<[u8]> = vec![0; MANIFEST_BYTES].into();
    let mut unread = Vec::new();
    for _ in 0..READERS_BYTES / SENDING_BYTES - 1 {
        unread.push(lent(&transfers, &large).await);
    }
    // Others have place beside them, whether they read the same or not.
    assert_eq!(readers.free(), SENDING_BYTES);
    let small: Arc<[u8]> = vec![0; PAGE_BYTES + 1].into();
    let mut pages = lent(&transfers, &small).await;
    assert_eq!(pages.next().await.unwrap().unwrap(), (PAGE_BYTES as u64 + 1, PAGE_BYTES));
    assert_eq!(pages.next().await.unwrap().unwrap(), (0, 1));
    assert!(pages.next().await.is_none());
    // Nor is any of it kept for them.
    drop(large);
    let mut first = unread.pop().unwrap();
    assert!(first.next().await.unwrap().is_ok(), "the page that was on its way");
    let mut gone = None;
    while let Some(page) = first.next().await {
        gone = page.err();
    }
    assert_eq!(gone.unwrap().code(), tonic::Code::NotFound);
}

fn page(size: usize, bytes: usize) -> ManifestPage {
    let data = Bytes::from(vec![7; bytes]);
    ManifestPage { size: size as u64, data, ..ManifestPage::default() }
}

/// Receives a manifest of `size` bytes; each of `pages` comes so long after the page before.
async fn received(size: usize, pages: &[(Duration, usize)]) -> Result<Vec<u8>, tonic::Code> {
    let pages = pages.to_vec();
    let later = tokio_stream::iter(pages).then(async |(after, bytes)| {
        tokio::time::sleep(after).await;
        Ok(page(0, bytes))
    });
    let first = page(size, 1);
    receive(first, &mut std::pin::pin!(later)).await.map_err(|status| status.code())
}

#[tokio::test(start_paused = true)]
async fn a_manifest_has_the_time_that_its_bytes_so_far_need() {
    let soon = TRANSFER_PATIENCE - Duration::from_secs(1);
    assert_eq!(received(3, &[(soon, 2)]).await, Ok(vec![7; 3]));
    // Each page comes soon after the last; all together take too long.
    let drip = [(soon, 1); 4];
    assert_eq!(received(5, &drip).await, Err(tonic::Code::DeadlineExceeded));
    assert_eq!(received(5, &[(2 * soon, 4)]).await, Err(tonic::Code::DeadlineExceeded));
    // Whoever is as fast as must be has as long as it takes.
    let second = (Duration::from_secs(1), PAGE_BYTES);
    let rate = TRANSFER_RATE as usize / PAGE_BYTES;
    let mut steady = Vec::new();
    for _ in 0..20 {
        steady.push(second);
        steady.extend(vec![(Duration::ZERO, PAGE_BYTES); rate - 1]);
    }
    let size = steady.len() * PAGE_BYTES + 1;
    assert_eq!(received(size, &steady).await.map(|bytes| bytes.len()), Ok(size));
}

/// How many bytes a reader gets that takes a page, and waits for `each` before the next.
async fn taken(bytes: usize, each: Duration) -> usize {
    let (readers, transfers) = room();
    let stored: Arc<[u8]> = vec![0; bytes].into();
    let mut pages = lent(&transfers, &stored).await;
    let mut taken = 0;
    loop {
        tokio::time::sleep(each).await;
        let Some(page) = pages.next().await else { break };
        taken += page.unwrap().1;
    }
    drop(pages);
    assert_eq!(readers.free(), READERS_BYTES, "its room is free again");
    taken
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_manifest_too_slowly_is_let_go() {
    const PAGES: usize = 400;
    let whole = PAGES * PAGE_BYTES;
    let fast = Duration::from_secs(1) * PAGE_BYTES as u32 / TRANSFER_RATE as u32;
    assert_eq!(taken(whole, fast).await, whole);
    assert!(taken(whole, 2 * fast).await < whole / 2, "half as fast as must be");
    // Soon after one another, and yet too slow.
    assert!(taken(whole, TRANSFER_PATIENCE - fast).await < 4 * PAGE_BYTES);
    assert!(taken(whole, 2 * TRANSFER_PATIENCE).await <= 2 * PAGE_BYTES);
}

#[tokio::test]
async fn a_reply_takes_the_room_that_it_needs() {
    let transfers = Transfers::new();
    let turns = Turns::new(HERE);
    let mut first = transfers.to_tell(&turns).await.unwrap();
    let free = transfers.statuses.free();
    Sent::reply(vec![0; 9], &mut first);
    assert_eq!(transfers.statuses.free(), free + STATUS_BYTES - 9);
    drop(first);
    assert_eq!(transfers.statuses.free(), STATUSES_BYTES);
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_does_not_wait_for_what_comes() {
    let turns = Turns::new(HERE);
    let soon = Duration::from_secs(1);
    let incoming: Vec<_> = (0..TRANSFERS).map(|_| turns.to_send().unwrap()).collect();
    assert!(turns.to_send().is_err());
    let mut outgoing = Vec::new();
    for _ in 0..TRANSFERS {
        let turn = tokio::time::timeout(soon, turns.to_be_sent()).await;
        outgoing.push(turn.expect("at once").unwrap());
    }
    assert!(tokio::time::timeout(soon, turns.to_be_sent()).await.is_err(), "it has to wait");
    drop(incoming);
    assert!(turns.to_send().is_ok());
    assert!(tokio::time::timeout(soon, turns.to_be_sent()).await.is_err(), "as before");
    drop(outgoing);
    assert!(tokio::time::timeout(soon, turns.to_be_sent()).await.is_ok());
}

#[tokio::test]
async fn a_manifest_has_so_many_bytes_at_most() {
    let (transfers, turns) = (Transfers::new(), Turns::new(HERE));
    for (size, right) in
        [(MANIFEST_BYTES as u64, true), (MANIFEST_BYTES as u64 + 1, false), (u64::MAX, false)]
    {
        let first = ManifestPage { size, ..ManifestPage::default() };
        let room = transfers.to_receive(&turns, &first).await.map(drop);
        assert_eq!(
            room.map_err(|status| status.code()),
            match right {
                true => Ok(()),
                false => Err(tonic::Code::ResourceExhausted),
            }
        );
    }
}

#[tokio::test]
async fn each_kind_of_reply_takes_the_room_of_its_largest() {
    let (transfers, turns) = (Transfers::new(), Turns::new(HERE));
    let free =
        || [&transfers.readers, &transfers.inspections, &transfers.statuses].map(FairQueue::free);
    let all = [READERS_BYTES, INSPECTIONS_BYTES, STATUSES_BYTES];
    assert_eq!(free(), all);
    let lent = transfers.to_lend(&turns).await.unwrap();
    assert_eq!(free(), [all[0] - SENDING_BYTES, all[1], all[2]]);
    let inspected = transfers.to_inspect(&turns).await.unwrap();
    let inspection = MESSAGE_BYTES + SENDING_BYTES;
    assert_eq!(free(), [all[0] - SENDING_BYTES, all[1] - inspection, all[2]]);
    let told = transfers.to_tell(&turns).await.unwrap();
    assert_eq!(free()[2], all[2] - STATUS_BYTES - SENDING_BYTES);
    drop((lent, inspected, told));
    assert_eq!(free(), all);
}

#[tokio::test]
async fn a_manifest_comes_in_pages_and_has_the_size_that_was_said() {
    const P: usize = PAGE_BYTES;
    let invalid = Err(tonic::Code::InvalidArgument);
    for (size, first, more, expected) in [
        (0, 0, &[][..], Ok(0)),
        (0, 1, &[], invalid),
        (P, P, &[], Ok(P)),
        (P + 1, P + 1, &[], invalid),
        (P + 1, P, &[1], Ok(P + 1)),
        (P + 1, P, &[2], invalid),
        (P + 1, 1, &[P], Ok(P + 1)),
        (2 * P, 1, &[P + 1], invalid),
        (2, 1, &[1, 1], invalid),
        (2, 1, &[0, 1, 0], Ok(2)),
    ] {
        let more: Vec<_> = more.iter().map(|bytes| Ok(page(0, *bytes))).collect();
        let received = receive(page(size, first), &mut tokio_stream::iter(more)).await;
        let received = received.map(|bytes| bytes.len()).map_err(|status| status.code());
        assert_eq!(received, expected, "{size} bytes, {first} of them at first");
    }
}

#[tokio::test]
async fn bytes_are_sent_in_as_few_pages_as_there_can_be() {
    const P: usize = PAGE_BYTES;
    for (bytes, expected) in [
        (0, vec![(0, 0)]),
        (1, vec![(1, 1)]),
        (P - 1, vec![(P as u64 - 1, P - 1)]),
        (P, vec![(P as u64, P)]),
        (P + 1, vec![(P as u64 + 1, P), (0, 1)]),
        (2 * P, vec![(2 * P as u64, P), (0, P)]),
    ] {
        let stored: Arc<[u8]> = vec![0; bytes].into();
        let pages = lent(&Transfers::new(), &stored).await;
        let pages: Vec<_> = pages.map(Result::unwrap).collect().await;
        assert_eq!(pages, expected, "{bytes} bytes");
    }
}

#[test]
fn patience_grows_with_each_second_of_bytes() {
    let rate = TRANSFER_RATE as usize;
    for (bytes, seconds) in
        [(0, 0), (1, 0), (rate - 1, 0), (rate, 1), (rate + 1, 1), (10 * rate, 10)]
    {
        let expected = TRANSFER_PATIENCE + Duration::from_secs(seconds);
        assert_eq!(patience(bytes), expected, "{bytes}");
    }
}
