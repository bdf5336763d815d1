//! Tests of the JSON API.

mod key;
mod request;
mod reset;
mod rules;
mod store_call;
mod top;
