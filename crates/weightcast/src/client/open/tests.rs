//! The options of a handle reach its session, its memory and its user.

use std::sync::atomic::{AtomicBool, Ordering};

use weightcast_plan::{DType, LayoutBuilder, Part};
use weightcast_protocol::message::EpochPolicy;
use weightcast_protocol::{Condition, Selector, Version};
use weightcast_transport::{Region, Way};

use super::*;
use crate::LayoutSource;
use crate::client::reading::plans::PlanFrom;
use crate::serve::{ServeConfig, Server, serve};

const VERSION: Version = Version { epoch: weightcast_protocol::Epoch(1), number: 2 };

#[test]
fn each_option_is_told_under_its_own_name() {
    for (role, epoch, retain, seeding) in [
        (Role::Trainer, EpochPolicy::New, 3, false),
        (Role::Rollout, EpochPolicy::Current, 0, true),
        (Role::Offload(VERSION), EpochPolicy::Current, 5, false),
    ] {
        let spot = seeding;
        let replica = Replica {
            datacentre: "paris".into(),
            host: "h".into(),
            spot,
            ..Replica::new("r", 4, 9)
        };
        let options = Options {
            epoch,
            retain,
            offload_seeding: seeding,
            deadline: Duration::from_secs(11),
            reconnect: Duration::from_secs(12),
            ..Options::new(role)
        };
        let config = session_config("policy", &replica, &options, "h:7".into(), "one,two").unwrap();
        let expected = Open {
            protocol: PROTOCOL,
            session: config.open.session,
            model: "policy".to_owned(),
            replica: "r".to_owned(),
            shard: 4,
            num_shards: 9,
            role,
            epoch,
            retain,
            offload_seeding: seeding,
            location: replica.location(),
            data_address: "h:7".to_owned(),
            ticket: None,
            rejoins: false,
            activate: false,
        };
        assert_eq!(config.open, expected);
        assert_eq!((config.server.as_str(), config.relays), ("one,two", true));
        assert_eq!(config.reconnect, span(Duration::from_secs(12)));
        assert_eq!(config.progress_every, Some(weightcast_protocol::limits::PROGRESS_EVERY));
        let again = session_config("policy", &replica, &options, "h:7".into(), "one,two").unwrap();
        assert_ne!(again.open.session, config.open.session, "each has a name of its own");
    }
}

#[test]
fn what_follows_from_a_role() {
    let listed = HandleFigures::listed("policy").model();
    for (role, filled, offloads, counts) in [
        (Role::Trainer, false, false, true),
        (Role::Rollout, true, false, true),
        (Role::Offload(VERSION), true, true, false),
        (Role::Seed(VERSION), true, false, false),
    ] {
        assert_eq!(fills(role), filled, "{role:?}");
        let threads = if offloads { threads::copying() } else { threads::sealing() };
        assert_eq!(sealing_threads(role), threads, "{role:?}");
        let own = figures(role, "policy").model();
        assert_eq!(Arc::ptr_eq(&own, &listed), counts, "{role:?}");
    }
}

#[test]
fn a_failed_call_is_recorded_before_its_caller_hears_of_it() {
    let (_server, options) = served();
    let directory = std::env::temp_dir().join(format!("wc-failed-{}", std::process::id()));
    let handle = opened(&Options { record_dir: Some(directory.clone()), ..options }).unwrap();
    let until = Condition::Available(Selector::Latest);
    let error = handle.wait(until, Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, Error::Call(CallError::VersionUnavailable { .. })), "{error}");
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 1);
    let name = files[0].file_name().into_string().unwrap();
    assert!(name.contains("failed"), "{name}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// By which way, and with whose plans.
#[test]
fn reads_are_as_the_options_say() {
    const LONG: Duration = Duration::from_secs(20);
    let (_server, options) = served();
    let directory = std::env::temp_dir().join(format!("wc-open-plans-{}", std::process::id()));
    let options = Options { way: Way::Direct, plan_cache: Some(directory.clone()), ..options };
    let held = |name: &str, role| {
        let options = Options { role, ..options.clone() };
        let handle = ShardHandle::open("policy", Replica::new(name, 0, 1), &options).unwrap();
        let mut layout = LayoutBuilder::new();
        layout.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
        let layout = LayoutSource::Known(layout.build().unwrap());
        handle.register(layout, vec![Region::allocate(8).unwrap()], LONG).unwrap();
        handle
    };
    let trainer = held("trainer", Role::Trainer);
    trainer.publish(1, LONG).unwrap();
    for (name, from) in [("first", PlanFrom::Planner), ("second", PlanFrom::File)] {
        let read = held(name, Role::Rollout).replicate(Selector::Latest, LONG).unwrap();
        assert_eq!((read.transfer.way.as_str(), read.transfer.plan_from), ("direct", from));
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// From its opening on, and for as long as there is a handle.
#[test]
fn who_may_interrupt_a_handle_ends_its_calls() {
    let (_server, options) = served();
    let ends = Arc::new(AtomicBool::new(false));
    let wanted = Arc::clone(&ends);
    let interrupted: Interrupted = Box::new(move || wanted.load(Ordering::Relaxed));
    let place = Replica::new("r", 0, 1);
    let handle = ShardHandle::open_interruptible("policy", place, &options, Some(interrupted));
    let handle = handle.unwrap();
    ends.store(true, Ordering::Relaxed);
    let until = Condition::Available(Selector::Latest);
    let ended = handle.wait(until, Duration::from_secs(20));
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
}

/// A server that asks for a token, and what leads to it.
fn served() -> (Server, Options) {
    let server = serve(ServeConfig { insecure: true, ..ServeConfig::default() }).unwrap();
    let options = Options {
        server: Some(server.address().to_owned()),
        insecure: true,
        deadline: Duration::from_secs(20),
        ..Options::new(Role::Rollout)
    };
    (server, options)
}

fn opened(options: &Options) -> Result<ShardHandle, Error> {
    ShardHandle::open("policy", Replica::new("r", 0, 1), options)
}

#[test]
fn what_bounds_a_handle_is_kept_with_it() {
    let (_server, options) = served();
    for staging_bytes in [None, Some(7)] {
        let handle = opened(&Options { staging_bytes, ..options.clone() }).unwrap();
        let own = handle.own().unwrap();
        assert_eq!(own.shared.staging_bytes, staging_bytes);
        assert!(own.fills && own.shared.sealing_threads == threads::sealing());
        assert_eq!((handle.warning(), handle.job.as_deref()), (None, None));
    }
    let trainer = Options { role: Role::Trainer, ..options.clone() };
    assert!(!opened(&trainer).unwrap().own().unwrap().fills);
}

#[test]
fn a_data_port_that_nobody_can_be_told_is_refused() {
    let (_server, options) = served();
    let everywhere = Options { data_bind: Some("0.0.0.0:0".to_owned()), ..options };
    let error = opened(&everywhere).err().expect("it is refused").to_string();
    assert!(error.contains("peers cannot connect to"), "{error}");
    let told = Options { data_advertise: Some("127.0.0.1:1".to_owned()), ..everywhere };
    assert!(opened(&told).is_ok());
    let nonsense = Options { data_bind: Some("here".to_owned()), ..told };
    assert!(opened(&nonsense).is_err());
}

#[test]
fn nobody_goes_without_a_token_unless_that_is_said() {
    let options = Options {
        server: Some("http://192.0.2.1:7".to_owned()),
        data_bind: Some("nonsense".to_owned()),
        ..Options::new(Role::Rollout)
    };
    let error = opened(&options).err().expect("it is refused").to_string();
    assert!(error.contains("insecure=True"), "{error}");
    // With that said, what comes next is looked at.
    let error = opened(&Options { insecure: true, ..options }).err().expect("it is refused");
    assert!(error.to_string().contains("nonsense"), "{error}");
}

/// A refusal gives no handle, and an interrupt ends the wait for one.
#[test]
fn a_handle_is_open_or_an_error() {
    let (_server, options) = served();
    let none = Options { deadline: Duration::from_millis(1), ..options.clone() };
    let _first = opened(&options).unwrap();
    // Its place is taken.
    assert!(opened(&none).is_err());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let options = Options { server: Some(address), ..options };
    let replica = Replica::new("r", 0, 1);
    let interrupted: Interrupted = Box::new(|| true);
    let given_up =
        ShardHandle::open_interruptible("policy", replica, &options, Some(interrupted)).err();
    assert!(matches!(given_up, Some(Error::Interrupted)), "{given_up:?}");
}
