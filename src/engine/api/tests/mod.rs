//! Tests of the JSON API.

mod key;
mod request;
mod reset;
mod store_call;
