//! Several layers at a time: parts → results in the same order, whichever thread did the work.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads worth having for local data: one per core. A layer's window and buffers are held per thread, so not without
/// end (zstd's window alone may be 8 MiB).
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS)
}

const MAX_WORKERS: usize = 8;

/// Applies `work` to every part with at most `workers` threads, the largest parts first by `size`.
///
/// # Errors
/// The error of the part that comes first in that order, regardless of scheduling; no new part is started after it.
pub fn for_each<P: Sync, R: Send, E: Send>(
    parts: &[P],
    workers: usize,
    size: impl Fn(&P) -> u64,
    work: impl Fn(&P) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(size(&parts[*at])));
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<R, E>>>> = parts.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        while !failed.load(Ordering::Relaxed) {
            let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let result = work(&parts[*at]);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            *results[*at].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        // This thread is one of them.
        for _ in 1..workers.min(parts.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    let mut results: Vec<Option<Result<R, E>>> =
        results.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    // Every started part has finished, so the first error in order is always known.
    for at in &order {
        if let Some(Err(_)) = &results[*at]
            && let Some(Err(error)) = results[*at].take()
        {
            return Err(error);
        }
    }
    Ok(results.into_iter().filter_map(|result| result.and_then(Result::ok)).collect())
}

/// Puts results back in the order of their parts; `places` names the result for each position. A result used several
/// times is copied, the others are moved.
pub fn put_back<R: Clone>(results: Vec<R>, places: &[usize]) -> Vec<R> {
    let mut results: Vec<Option<R>> = results.into_iter().map(Some).collect();
    let take = |(at, place): (usize, &usize)| {
        let used_again = places[at + 1..].contains(place);
        let slot = results.get_mut(*place)?;
        if used_again { slot.clone() } else { slot.take() }
    };
    places.iter().enumerate().filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order() {
        let parts: Vec<u64> = (0..100).collect();
        for workers in [1, 2, 8] {
            let doubled = for_each(&parts, workers, |part| part % 7, |part| Ok::<_, ()>(part * 2)).unwrap();
            assert_eq!(doubled, parts.iter().map(|part| part * 2).collect::<Vec<_>>());
        }
        assert_eq!(for_each(&[] as &[u64], 2, |_| 0, |_| Ok::<_, ()>(0)), Ok(vec![]));
    }

    #[test]
    fn one_result_for_several_places() {
        assert_eq!(put_back(vec!["a", "b", "c"], &[1, 0, 1, 2]), ["b", "a", "b", "c"]);
    }

    #[test]
    fn the_same_error_every_time() {
        let parts: Vec<u64> = (0..50).rev().collect();
        for _ in 0..50 {
            let error = for_each(&parts, 4, |part| *part, |part| if part % 20 == 9 { Err(*part) } else { Ok(()) });
            assert_eq!(error, Err(49));
        }
    }
}
