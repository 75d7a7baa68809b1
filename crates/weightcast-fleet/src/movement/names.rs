//! Names that somebody may have meant.

use weightcast_plan::nearest;

use crate::cluster::Cluster;

/// The published names nearest to this one.
pub fn nearest_names(cluster: &Cluster, name: &str) -> Vec<String> {
    let names: Vec<String> = cluster.families().iter().flat_map(|f| f.names()).collect();
    nearest(name, names.iter().map(String::as_str))
}
