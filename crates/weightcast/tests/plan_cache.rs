//! Plans that stay in a directory: a handle that is opened later reads them instead of planning.

#[allow(dead_code)] // each test program uses some of it
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Cluster, columns, expected_columns, rows, run_group};
use weightcast::transport::Region;
use weightcast::{LayoutSource, Options, PlanFrom, Replica, Role, Selector, ShardHandle};

const SOON: Duration = Duration::from_secs(20);

/// A trainer's version, and a directory for plans that goes with it.
struct World {
    cluster: Cluster,
    trainer: Vec<support::Shard>,
    directory: PathBuf,
}

impl World {
    fn new(test: &str) -> Self {
        let cluster = Cluster::start();
        let trainer = cluster.group("trainer", Role::Trainer, 2, |index| rows(index, 2, 1));
        run_group(&trainer, |shard| shard.handle.publish(1, SOON).unwrap());
        let name = format!("wc-plans-{test}-{}", std::process::id());
        Self { cluster, trainer, directory: std::env::temp_dir().join(name) }
    }

    /// Opens a rollout of one shard, fills it twice, closes it; says where its plans came from.
    fn read(&self, name: &str, cache: Option<&Path>) -> [PlanFrom; 2] {
        let options = Options {
            server: Some(self.cluster.server.address().to_owned()),
            plan_cache: cache.map(Path::to_owned),
            ..Options::new(Role::Rollout)
        };
        let handle = ShardHandle::open("model", Replica::new(name, 0, 1), &options).unwrap();
        let (layout, blank) = columns(0, 1);
        let region = Region::from_bytes(&blank).unwrap();
        handle.register(LayoutSource::Known(layout), vec![region.clone()], SOON).unwrap();
        let read = |()| {
            region.write_at(0, &blank).unwrap();
            let updated = handle.replicate(Selector::Exact(1), SOON).unwrap();
            assert_eq!(region.to_vec(), expected_columns(0, 1, 1));
            handle.unpublish(SOON).unwrap();
            updated.transfer.plan_from
        };
        let from = [(), ()].map(read);
        handle.close(SOON);
        from
    }

    /// The one plan that is stored.
    fn file(&self) -> PathBuf {
        let mut files: Vec<_> =
            fs::read_dir(&self.directory).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
        self.trainer.clear();
    }
}

#[test]
fn who_is_opened_later_need_not_plan() {
    let world = World::new("later");
    let cache = Some(world.directory.as_path());
    assert_eq!(world.read("alone", None), [PlanFrom::Planner, PlanFrom::Memory]);
    assert_eq!(world.read("first", cache), [PlanFrom::Planner, PlanFrom::Memory]);
    let written = fs::read(world.file()).unwrap();
    assert_eq!(world.read("second", cache), [PlanFrom::File, PlanFrom::Memory]);
    assert_eq!(fs::read(world.file()).unwrap(), written);
}

#[test]
fn what_is_of_no_use_is_planned_again_and_replaced() {
    let world = World::new("damaged");
    let cache = Some(world.directory.as_path());
    world.read("first", cache);
    let (file, written) = (world.file(), fs::read(world.file()).unwrap());
    let flipped = [&written[..50], &[written[50] ^ 1], &written[51..]].concat();
    for damaged in [&b""[..], b"anything", &written[..written.len() - 1], &flipped] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(world.read("next", cache)[0], PlanFrom::Planner);
        assert_eq!(fs::read(world.file()).unwrap(), written);
    }
    assert_eq!(world.read("last", cache)[0], PlanFrom::File);
}

#[test]
fn what_is_in_the_way_is_no_reason_to_fail() {
    let world = World::new("gone");
    world.read("first", Some(&world.directory));
    let file = world.file();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(world.read("next", Some(&world.directory))[0], PlanFrom::Planner);
}
