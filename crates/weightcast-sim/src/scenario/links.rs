//! Links, and how simultaneous flows share them: max-min fair, roughly as TCP and InfiniBand do.
//! One GB/s is one byte a nanosecond.

/// A direction of a card, or of a link between datacentres.
#[derive(Clone, Debug)]
pub(super) struct NetworkLink {
    pub(super) name: String,
    /// Goodput in bytes a nanosecond.
    pub(super) rate: f64,
    /// Bytes of ended reads that went through the link, warm-up included.
    pub(super) bytes: f64,
}

/// Rates of flows, each along a path of links. Every flow is limited by a link that is full and on
/// which no flow is faster.
pub(super) fn max_min(rates: &dyn Fn(usize) -> f64, paths: &[&[usize]]) -> Vec<f64> {
    let mut links: Vec<usize> = paths.iter().flat_map(|path| path.iter().copied()).collect();
    links.sort_unstable();
    links.dedup();
    let mut left: Vec<f64> = links.iter().map(|link| rates(*link)).collect();
    let place = |link: &usize| links.binary_search(link).expect("all are there");
    let mut users = vec![0_u32; links.len()];
    paths.iter().flat_map(|path| path.iter()).for_each(|link| users[place(link)] += 1);
    let mut shares: Vec<Option<f64>> = vec![None; paths.len()];
    // Each turn fills the link with the smallest share for each of its flows, and fixes these
    // flows' rates.
    while let Some((full, share)) = users
        .iter()
        .enumerate()
        .filter(|(_, users)| **users > 0)
        .map(|(index, users)| (index, left[index] / f64::from(*users)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
    {
        for (path, flow) in paths.iter().zip(&mut shares) {
            if flow.is_none() && path.contains(&links[full]) {
                *flow = Some(share);
                for link in path.iter().map(place) {
                    left[link] = (left[link] - share).max(0.0);
                    users[link] -= 1;
                }
            }
        }
    }
    shares.into_iter().map(|share| share.expect("every path has a link")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    #[test]
    fn the_narrowest_link_is_shared_first() {
        let rates = [10.0, 3.0, 8.0];
        let shares = max_min(&|link| rates[link], &[&[0], &[0, 1], &[0, 2], &[1]]);
        assert_eq!(shares, [4.25, 1.5, 4.25, 1.5]);
    }

    #[test]
    fn no_link_is_overfull_and_each_flow_meets_a_full_one() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed);
            let rates: Vec<f64> = (0..8).map(|_| rng.between(1, 50) as f64).collect();
            let paths: Vec<Vec<usize>> = (0..rng.between(1, 12))
                .map(|_| {
                    let first = rng.below(4) as usize;
                    vec![first, first + rng.between(1, 4) as usize]
                })
                .collect();
            let borrowed: Vec<&[usize]> = paths.iter().map(Vec::as_slice).collect();
            let shares = max_min(&|link| rates[link], &borrowed);
            let through = |link: usize| {
                let using = paths.iter().zip(&shares).filter(|(path, _)| path.contains(&link));
                using.map(|(_, share)| *share).collect::<Vec<f64>>()
            };
            for (link, rate) in rates.iter().enumerate() {
                assert!(through(link).iter().sum::<f64>() <= rate + 1e-9, "seed {seed}");
            }
            for (path, share) in paths.iter().zip(&shares) {
                let held_up = path.iter().any(|link| {
                    let users = through(*link);
                    let full = users.iter().sum::<f64>() >= rates[*link] - 1e-9;
                    full && users.iter().all(|other| other <= &(share + 1e-9))
                });
                assert!(held_up, "seed {seed}");
            }
        }
    }
}
