//! skeleton
#[cfg(all(feature = "nginx", not(test)))]
mod nginx;
