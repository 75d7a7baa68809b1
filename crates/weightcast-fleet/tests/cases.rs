//! The transfers that published systems report: ideal bytes for each rank and host.

use crate::common;
#[path = "../../weightcast-bench/src/plans/specs.rs"]
mod specs;

use weightcast_fleet::{Cluster, movement};

#[test]
fn every_case_moves_the_ideal_bytes() {
    let (_, cases) =
        common::folder("cases").into_iter().find(|(f, _)| f == "cases").expect("cases");
    let mut seen = 0;
    for case in cases["cases"].as_array().expect("cases") {
        if case["engine"].is_null() {
            continue;
        }
        let name = case["case"].as_str().expect("a name");
        let model = common::model(case["model"].as_str().expect("a model"));
        let cluster = |spec: String| Cluster::new(&model, &spec.parse().expect("a spec"));
        let source = cluster(specs::trainer(case).expect("ranks")).expect("a trainer");
        let target = cluster(specs::engine(case)).expect("an engine");
        let replicas = case["inference"]["engines"].as_u64().expect("engines");
        let plan = movement::plan(&source, &target, replicas, 8).expect("a plan");
        assert_eq!(plan.defects, Vec::<String>::new(), "{name}");
        let ideal = case["P_bytes"]["max"].as_u64().expect("bytes");
        assert!(plan.per_target.iter().all(|&bytes| bytes == ideal), "{name}: {ideal}");
        let most = plan.per_source.iter().copied().max().expect("a source") as f64;
        let bound = case["min_send_per_trainer_rank_pp_bound"].as_f64().expect("a bound");
        println!("{name}: {} {} send {:.4}", source.ranks(), target.ranks(), most / bound);
        assert!(most <= 1.05 * bound, "{name}: {most} of {bound}");
        let unique = case["unique_bytes_per_inference_node"].as_u64().expect("bytes");
        let entering = plan.host_in.iter().copied().max().expect("a host");
        assert_eq!(entering, unique, "{name}: {:?}", plan.host_in);
        seen += 1;
    }
    assert_eq!(seen, 19);
}
