//! What an update costs, part by part.

use weightcast_fleet::movement::{Assumed, AssumedMachine, Cost, FleetPlan, NicBytes};

const GB: u64 = 1_000_000_000;

/// A plan in which nothing is moved.
fn nothing() -> FleetPlan {
    FleetPlan {
        replicas: 1,
        largest_source: 0,
        per_target: vec![0; 4],
        per_source: vec![0; 2],
        host_in: vec![0; 2],
        host_out: vec![0],
        network_out: vec![0; 2],
        network_in: vec![0; 4],
        copies: 0,
        messages: 0,
        of_busiest: (0, 0),
        broadcast: 0,
        largest_converted: 0,
        converted: 0,
        least: NicBytes::default(),
        least_direct: NicBytes::default(),
        defects: Vec::new(),
        warnings: Vec::new(),
    }
}

fn figure(value: f64) -> Assumed {
    Assumed { value, from: "a test" }
}

/// Figures that are told apart, with hosts of two ranks.
fn machine() -> AssumedMachine {
    AssumedMachine {
        gpus_per_host: 2,
        nic: figure(50e9),
        goodput: figure(0.95),
        network: figure(1e12),
        host: figure(150e9),
        staging: None,
        convert: figure(1e12),
        process: figure(200e9),
        pause: figure(0.25),
        message: figure(2e-6),
        copy: figure(1e-7),
        ..AssumedMachine::ALL[0]
    }
}

fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-9 * wanted.abs(), "{found}, not {wanted}");
}

/// The seconds of a part.
fn seconds(plan: &FleetPlan, machine: &AssumedMachine, name: &str) -> f64 {
    let cost = Cost::of(plan, machine, 100 * GB);
    cost.parts.iter().find(|part| part.name == name).expect("a part").seconds
}

fn transfer(plan: &FleetPlan) -> f64 {
    seconds(plan, &machine(), "transfer")
}

#[test]
fn the_slowest_stage_makes_the_time_of_a_transfer() {
    near(transfer(&nothing()), 0.0);
    // The busiest rank at 95 % of its NIC, or at what a rank reads at most.
    let send = FleetPlan { network_out: vec![19 * GB, 95 * GB], ..nothing() };
    near(transfer(&send), 2.0);
    let received = vec![GB, 95 * GB, 0, 0];
    let receive = FleetPlan { per_target: received.clone(), network_in: received, ..nothing() };
    near(transfer(&receive), 2.0);
    // What others of the host have brought in is copied there.
    let shared = FleetPlan { network_in: vec![GB, 19 * GB, 0, 0], ..receive.clone() };
    near(transfer(&shared), 76.0 / 150.0);
    let entered = FleetPlan { network_in: vec![GB, 57 * GB, 0, 0], ..receive.clone() };
    near(transfer(&entered), 1.2);
    let slow = AssumedMachine { network: figure(5e9), ..machine() };
    near(seconds(&receive, &slow, "transfer"), 19.0);
    // All sources convert at once.
    let converted = FleetPlan { converted: 4_000 * GB, ..nothing() };
    near(transfer(&converted), 2.0);
    // Stages overlap; the first piece fills them, and messages cost besides.
    let all = FleetPlan {
        network_out: vec![0, 95 * GB],
        converted: 1_000 * GB,
        largest_converted: 10 * GB,
        of_busiest: (3_000_000, 50_000),
        ..nothing()
    };
    near(transfer(&all), 10.0 / 1_000.0 + 2.0 + 0.3 + 0.1);
    let cost = |budget| Cost::of(&all, &machine(), budget);
    assert_eq!((cost(100 * GB).peak_staged, cost(8 * GB).peak_staged), (20 * GB, 8 * GB));
    near(cost(8 * GB).parts[2].seconds, 4.0 / 1_000.0 + 2.0 + 0.3 + 0.1);
}

/// A replica serves one reader at a time: what one engine gets leaves the sources, and engines follow one another.
#[test]
fn engines_stand_in_a_chain() {
    let of = |replicas: u64, ranks: usize| {
        let hosts = (replicas * ranks as u64).div_ceil(2);
        let (targets, on_host) = (ranks * replicas as usize, 2 / ranks as u64);
        FleetPlan {
            replicas,
            per_target: vec![9 * GB; targets],
            // Engines of a host hold the same.
            network_in: vec![9 * GB / on_host.min(replicas); targets],
            network_out: vec![19 * GB * hosts, 0],
            of_busiest: (10_000_000 * hosts, 0),
            ..nothing()
        }
    };
    // Ranks of two: an engine for each host.
    let hop = 9.0 / 256.0 / 47.5;
    near(transfer(&of(1, 2)), 0.4 + 1.0);
    near(transfer(&of(5, 2)), 0.4 + 1.0 + 4.0 * hop);
    // Two engines on a host: the second reads from the first.
    near(transfer(&of(5, 1)), 0.4 + 1.0 + 2.0 * hop);
    let slow = AssumedMachine { host: figure(3e9), ..machine() };
    near(seconds(&of(5, 1), &slow, "transfer"), 3.0 + 1.0 + 2.0 * hop);
    near(seconds(&of(5, 2), &slow, "transfer"), 0.4 + 1.0 + 4.0 * hop);
    near(seconds(&of(1, 1), &slow, "transfer"), 0.4 + 1.0);
    // The first engine of a host brings in what all of the host need, and no more than it holds.
    let enters = |each: u64| FleetPlan {
        network_in: vec![each * GB / 10; 5],
        network_out: vec![0; 2],
        of_busiest: (0, 0),
        ..of(5, 1)
    };
    near(transfer(&enters(30)), 6.0 / 47.5 + 2.0 * 6.0 / 256.0 / 47.5);
    near(transfer(&enters(60)), 9.0 / 47.5 + 2.0 * hop);
}

#[test]
fn an_update_is_the_sum_of_parts_that_name_their_figures() {
    let plan = FleetPlan {
        largest_source: 30 * GB,
        per_target: vec![40 * GB, 50 * GB],
        network_in: vec![40 * GB, 50 * GB],
        network_out: vec![95 * GB],
        ..nothing()
    };
    let staged = AssumedMachine { staging: Some(figure(10e9)), ..machine() };
    let cost = Cost::of(&plan, &staged, 0);
    let parts: Vec<(&str, f64)> = cost.parts.iter().map(|part| (part.name, part.seconds)).collect();
    let wanted = [
        ("pause", 0.25),
        ("gather", 3.0),
        ("transfer", 2.0),
        ("install", 5.0),
        ("post-process", 0.25),
    ];
    assert_eq!(parts, wanted);
    near(cost.predicted(), 10.5);
    assert!(cost.parts.iter().all(|part| part.from.contains("a test")), "{cost:?}");
    assert!(
        cost.parts[1].from.starts_with("30.000 GB of the busiest rank at 10.0 GB/s"),
        "{cost:?}"
    );
    for name in ["gather", "install"] {
        near(seconds(&plan, &machine(), name), 0.0);
    }
}

#[test]
fn the_bound_is_the_busiest_nic_at_its_full_rate() {
    let plan = FleetPlan {
        least: NicBytes { out: 100e9, into: 150e9 },
        least_direct: NicBytes { out: 200e9, into: 75e9 },
        ..nothing()
    };
    let cost = Cost::of(&plan, &machine(), 0);
    near(cost.lower_bound, 3.0);
    near(cost.lower_bound_direct, 4.0);
}

/// Every figure says where it comes from, and every machine which ways are built.
#[test]
fn machines_say_what_they_are_made_of() {
    for machine in AssumedMachine::ALL {
        assert_eq!(AssumedMachine::named(machine.name), Some(machine));
        assert!(machine.ways.ends_with("; built") || machine.ways.ends_with("; not built"));
        for (what, _, figure) in machine.figures() {
            let kinds = ["measured: ", "reported: ", "guess: "];
            assert!(kinds.iter().any(|kind| figure.from.starts_with(kind)), "{what}: {figure:?}");
            assert!(figure.value > 0.0, "{what}");
        }
        let fast = machine.nic.value * machine.goodput.value < machine.network.value;
        assert_eq!(
            machine.network_from(),
            if fast { machine.nic.from } else { machine.network.from }
        );
    }
    assert_eq!(AssumedMachine::named("h200"), None);
}
