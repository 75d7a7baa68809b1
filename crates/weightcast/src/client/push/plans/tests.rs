//! Which plan a key names, and how long it is kept.

use super::*;
use crate::client::push::scene::*;

fn key(first: u8) -> PushPlanKey {
    (vec![ContentDigest([first; 16])], 0, BASE.to_vec())
}

#[test]
fn a_plan_is_made_once_for_what_it_is_of() {
    let plans = PushPlans::default();
    let get = |key: PushPlanKey, targets: &[Arc<Layout>]| plans.get(key, targets, &base()).unwrap();
    let pair = base();
    let first = get(key(1), &[whole()]);
    assert!(Arc::ptr_eq(&first, &get(key(1), &[])), "it is known: nothing is looked at");
    assert_eq!((first.parcels.len(), first.target.bytes()), (2, BYTES));
    assert!(first.target.regions.is_empty());
    assert_eq!(first.fingerprint, fingerprint(&first.parcels));
    for other in [key(2), (key(1).0, 1, key(1).2), (key(1).0, 0, vec![WHOLE])] {
        let made = get(other.clone(), &pair);
        assert!(!Arc::ptr_eq(&first, &made) && made.target.bytes() == BYTES / 2, "{other:?}");
    }
    let shard = |shard| plans.get((vec![WHOLE; 2], shard, BASE.to_vec()), &pair, &base());
    assert_eq!(shard(1).unwrap().parcels[0].source, 1);
    assert_eq!(shard(0).unwrap().parcels[0].source, 0);
    for beyond in [2, u32::MAX] {
        let refused = shard(beyond).err().unwrap().to_string();
        assert!(refused.contains("its replica lacks"), "{refused}");
    }
}

#[test]
fn the_newest_plans_are_kept() {
    let plans = PushPlans::default();
    let get = |number: usize| plans.get(key(number as u8), &[whole()], &base()).unwrap();
    let made: Vec<_> = (0..PUSH_PLANS).map(get).collect();
    assert!(Arc::ptr_eq(&made[0], &get(0)));
    get(PUSH_PLANS);
    assert!(Arc::ptr_eq(&made[1], &get(1)), "one goes for each that comes");
    assert!(!Arc::ptr_eq(&made[0], &get(0)), "the oldest");
}

/// A sender sums what it sends as the target sums what has come.
#[test]
fn a_parcels_sum_is_that_of_its_bytes_at_the_target() {
    let target = PushScene::target();
    target.region.write_at(0, &content()).unwrap();
    let (registration, _) = target.state.current().unwrap();
    let plan = PushPlan { target: Arc::clone(&registration), ..made(&target) };
    let sums: Vec<Sum> =
        plan.parcels.iter().map(|of| plan.sum(&plan.digests(of, 2, || true))).collect();
    assert_ne!(sums[0], sums[1]);
    assert_eq!(sums[0] + sums[1], registration.fold(&registration.digest_all()).held);
    let none = plan.digests(&plan.parcels[0], 1, || false);
    assert_eq!(none, vec![Digest::default(); registration.cells.len()]);
}

fn made(target: &PushScene) -> PushPlan {
    let plan = target.plan();
    let (parcels, echoes) = (plan.parcels.clone(), plan.echoes.clone());
    PushPlan { target: Arc::clone(&plan.target), parcels, fingerprint: plan.fingerprint, echoes }
}
