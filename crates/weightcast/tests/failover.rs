//! Two reference servers; the first one dies.

use crate::support;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::support::{group, run_group};
use tokio_stream::StreamExt;
use weightcast::transport::Secret;
use weightcast::wire::reference_server_client::ReferenceServerClient;
use weightcast::wire::{ManifestPage, ProbeRequest};
use weightcast::{Role, Selector, ServeConfig, Server, serve};

const SOON: Duration = Duration::from_secs(20);

fn server(index: u32) -> Server {
    let lease = Duration::from_secs(1);
    serve(ServeConfig { index, lease, paranoid: true, ..ServeConfig::default() }).unwrap()
}

#[test]
fn a_backup_learns_from_the_clients_what_the_first_server_knew() {
    let (first, second) = (server(0), server(1));
    let servers = format!("{},{}", first.address(), second.address());
    let trainer = group(&servers, "trainer", Role::Trainer, 2, |s| support::rows(s, 2, 1));
    let rollout = group(&servers, "rollout", Role::Rollout, 1, |_| support::columns(0, 1));
    run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
    run_group(&rollout, |shard| shard.handle.replicate(Selector::Latest, SOON).unwrap());
    first.stop().unwrap();
    // Nobody publishes again: a new replica finds at the second server what was at the first.
    let other = group(&servers, "other", Role::Rollout, 2, |s| support::columns(s, 2));
    let read = run_group(&other, |shard| shard.handle.replicate(Selector::Exact(1), SOON));
    assert!(read.into_iter().all(|updated| updated.unwrap().version.unwrap().number == 1));
    for shard in &other {
        assert_eq!(shard.memory(), support::expected_columns(shard.index, 2, 1));
    }
    // The trainer goes on with the next version, once the first one may be given up.
    run_group(&trainer, |shard| {
        shard.handle.unpublish(SOON).unwrap();
        shard.fill(&support::expected_rows(shard.index, 2, 2));
        shard.handle.publish(2, SOON).unwrap();
    });
    run_group(&rollout, |shard| {
        assert!(shard.handle.update(Selector::Latest, false, SOON).unwrap().changed);
    });
    assert_eq!(rollout[0].memory(), support::expected_columns(0, 1, 2));
}

#[test]
fn a_server_that_gives_up_is_gone_for_its_clients() {
    let told = std::env::temp_dir().join(format!("weightcast-gave-up-{}", std::process::id()));
    let lease = Duration::from_secs(1);
    let gives_up_at = Some(told.clone());
    let first = serve(ServeConfig { lease, gives_up_at, ..ServeConfig::default() }).unwrap();
    let second = server(1);
    let servers = format!("{},{}", first.address(), second.address());
    let trainer = group(&servers, "trainer", Role::Trainer, 1, |s| support::rows(s, 1, 1));
    run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
    std::fs::write(&told, "").unwrap();
    // The next heartbeat is the last that it sees.
    let gave_up = first.wait().unwrap_err().to_string();
    std::fs::remove_file(&told).unwrap();
    assert!(gave_up.contains("gave up"), "{gave_up}");
    let rollout = group(&servers, "rollout", Role::Rollout, 1, |_| support::columns(0, 1));
    run_group(&rollout, |shard| shard.handle.replicate(Selector::Latest, SOON).unwrap());
    assert_eq!(rollout[0].memory(), support::expected_columns(0, 1, 1));
}

/// Small manifests that are never finished: so many that one more would wait most of a minute.
async fn crowd(address: &str) {
    let mut clients = Vec::new();
    for number in 0..280_u64 {
        let endpoint = tonic::transport::Endpoint::from_shared(address.to_owned());
        let mut client = ReferenceServerClient::new(endpoint.unwrap().connect_lazy());
        client.probe(ProbeRequest::default()).await.unwrap();
        for half in 0..2 {
            let digest = [number, half].map(u64::to_le_bytes).concat();
            let page = ManifestPage { digest, size: 1 << 20, data: vec![0; 9].into() };
            let pages = tokio_stream::once(page).chain(tokio_stream::pending());
            let mut client = client.clone();
            tokio::spawn(async move { client.put_manifest(pages).await });
        }
        clients.push(client);
    }
    for mut client in clients {
        client.probe(ProbeRequest::default()).await.unwrap();
    }
}

#[test]
fn a_shard_comes_over_though_its_layout_waits_for_its_turn() {
    let server = |index, insecure| {
        let (lease, ticket_secret) = (Duration::from_secs(4), Some(Secret::new("s".repeat(32))));
        let config = ServeConfig { index, insecure, lease, ticket_secret, ..Default::default() };
        serve(ServeConfig { paranoid: true, ..config }).unwrap()
    };
    // The second is crowded by clients without a token.
    let (first, second) = (server(0, false), server(1, true));
    let servers = format!("{},{}", first.address(), second.address());
    let trainer = group(&servers, "trainer", Role::Trainer, 1, |s| support::rows(s, 1, 1));
    run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
    let (address, (told, crowded)) = (second.address().to_owned(), mpsc::channel());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            crowd(&address).await;
            told.send(()).unwrap();
            std::future::pending::<()>().await
        })
    });
    crowded.recv().unwrap();
    first.stop().unwrap();
    run_group(&trainer, |shard| {
        shard.handle.unpublish(SOON).unwrap();
        shard.fill(&support::expected_rows(shard.index, 1, 2));
        shard.handle.publish(2, SOON).unwrap();
    });
}
