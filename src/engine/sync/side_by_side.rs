//! Runs futures concurrently, a few at a time.

use core::future::poll_fn;
use core::mem;
use core::pin::{Pin, pin};
use core::task::Poll;

/// Lets the other tasks of the thread run once.
pub(super) async fn give_way() {
    let mut has_waited = false;
    poll_fn(|context| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for `future`, and does `work` when `future` first waits and its output has been sent.
/// Returns both results.
pub(super) async fn beside<F: Future, W>(future: F, work: impl FnOnce() -> W) -> (F::Output, W) {
    let mut future = pin!(future);
    let mut output = None;
    // The output is passed to another task, which needs a turn, and so does the one that it wakes.
    let mut turns = 0..2;
    poll_fn(|context| {
        if let Poll::Ready(ready) = future.as_mut().poll(context) {
            output = Some(ready);
            return Poll::Ready(());
        }
        match turns.next() {
            Some(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    })
    .await;
    let work = work();
    match output {
        Some(output) => (output, work),
        None => (future.await, work),
    }
}

/// Runs these futures, up to `at_once` at a time, in their order. Returns their results in the
/// order in which they end.
pub(super) async fn side_by_side<F: Future>(
    mut futures: impl Iterator<Item = F>,
    at_once: usize,
) -> Vec<F::Output> {
    let mut under_way: Vec<Pin<Box<F>>> = Vec::new();
    let mut done = Vec::new();
    poll_fn(move |context| {
        under_way.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(output) => {
                done.push(output);
                false
            }
            Poll::Pending => true,
        });
        // Others replace the ones that have ended.
        while under_way.len() < at_once {
            let Some(mut next) = futures.next().map(Box::pin) else {
                break;
            };
            match next.as_mut().poll(context) {
                Poll::Ready(output) => done.push(output),
                Poll::Pending => under_way.push(next),
            }
        }
        match under_way.is_empty() {
            true => Poll::Ready(mem::take(&mut done)),
            false => Poll::Pending,
        }
    })
    .await
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;
    use core::pin::pin;
    use core::task::{Context, Waker};

    use super::*;

    /// Waits until `turns` reaches `until`.
    async fn wait(turns: &Cell<u32>, until: u32, number: u32) -> u32 {
        poll_fn(|_| match turns.get() >= until {
            true => Poll::Ready(number),
            false => Poll::Pending,
        })
        .await
    }

    #[test]
    fn a_waiting_future_delays_no_other() {
        let (turns, begun) = (Cell::new(0), Cell::new(0));
        let futures = [1, 0, 0, 2, 0, 1].into_iter().zip(0..).map(|(until, number)| {
            begun.set(begun.get() + 1);
            wait(&turns, until, number)
        });
        let mut all = pin!(side_by_side(futures, 2));
        let mut context = Context::from_waker(Waker::noop());
        assert!(all.as_mut().poll(&mut context).is_pending());
        // The first and the fourth are running.
        assert_eq!(begun.get(), 4);
        turns.set(1);
        assert!(all.as_mut().poll(&mut context).is_pending());
        assert_eq!(begun.get(), 6);
        turns.set(2);
        assert_eq!(all.poll(&mut context), Poll::Ready(vec![1, 2, 0, 4, 5, 3]));
    }

    #[test]
    fn work_is_done_once_while_a_future_waits() {
        let (turns, works) = (Cell::new(0), Cell::new(0));
        let work = || works.set(works.get() + 1);
        let mut context = Context::from_waker(Waker::noop());
        let mut both = pin!(beside(wait(&turns, 5, 7), work));
        // The output is sent first.
        assert!(both.as_mut().poll(&mut context).is_pending());
        assert!(both.as_mut().poll(&mut context).is_pending());
        assert_eq!(works.get(), 0);
        for _ in 0..2 {
            assert!(both.as_mut().poll(&mut context).is_pending());
            assert_eq!(works.get(), 1);
        }
        turns.set(5);
        assert_eq!(both.poll(&mut context), Poll::Ready((7, ())));
        // With a future that does not wait.
        let both = pin!(beside(wait(&turns, 5, 8), work));
        assert_eq!(both.poll(&mut context), Poll::Ready((8, ())));
        assert_eq!(works.get(), 2);
    }

    #[test]
    fn no_futures_have_no_results() {
        let none = core::iter::empty::<core::future::Ready<()>>();
        let all = pin!(side_by_side(none, 2));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(all.poll(&mut context), Poll::Ready(vec![]));
    }
}
