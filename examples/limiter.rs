//! A limiter in one process: ten hits a minute for each client, and a burst for a rate.
//!
//!     cargo run --no-default-features --features conformance --example limiter

use std::error::Error;
use std::time::Duration;

use ngx_http_rate_limiting_module::library::{
    LimiterOptions, Memory, NewOptions, WindowType, new_instance,
};

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let ratelimiting = new_instance("limiter")?;
    ratelimiting.new(&NewOptions::new(&Memory::heap(1 << 20)?))?;

    let options = LimiterOptions::window(10.0, MINUTE).window_type(WindowType::Moving);
    let limiter = ratelimiting.limiter(&options)?;
    for number in 1..=12 {
        let decision = limiter.incoming("203.0.113.9", true)?;
        match decision.retry_after {
            _ if decision.is_admitted => println!("{number}: {} are left", decision.remaining),
            Some(time) => println!("{number}: rejected, the next one in {time:?}"),
            None => println!("{number}: never"),
        }
        if decision.is_admitted != (number <= 10) {
            return Err(format!("hit {number} of 10: {}", decision.is_admitted).into());
        }
    }

    // As limit_req with rate=10r/s burst=5: what comes at once is to wait.
    let limiter = ratelimiting.limiter(&LimiterOptions::rate(10.0, 5.0))?;
    for _ in 0..3 {
        let decision = limiter.incoming("203.0.113.9", true)?;
        println!("wait for {:?}", decision.delay);
    }
    Ok(())
}

#[test]
fn runs() -> Result<(), Box<dyn Error>> {
    main()
}
