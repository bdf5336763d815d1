//! Wake-ups between threads and processes.
//!
//! - [`eventfd`]: a thread that waits for a descriptor; [`timer`]: a timer below a millisecond
//! - [`bells`]: the threads of a node's workers; [`event_loop_queue`]: results for an event loop

pub(super) mod bells;
pub(super) mod event_loop_queue;
#[allow(unsafe_code, reason = "calls the system")]
pub(super) mod eventfd;
#[allow(unsafe_code, reason = "calls the system")]
pub(super) mod timer;
