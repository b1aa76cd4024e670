//! An HTTP service: each route changes a row and emits its event in one transaction. Runs on
//! SQLite, or on the database that a URL names: `axum-orders ADDRESS [URL]`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod args;
mod event;
mod table;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, post};
use axum::{Json, Router};
use pillarbox::{Cx, Failure, Listeners, Outbox, Relay, RelaySettings, Store};
use tokio::net::TcpListener;

use crate::args::trouble;
use crate::event::{OrderCancelled, OrderPlaced};
use crate::table::Orders;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// `POST /orders` with an address in JSON.
async fn place<P: Orders>(
    State((orders, outbox)): State<(P, Outbox)>,
    Json(email): Json<String>,
) -> Result<(StatusCode, Json<i64>), StatusCode> {
    let order_id = orders.place(&outbox, email).await.map_err(trouble)?;
    Ok((StatusCode::CREATED, Json(order_id)))
}

/// `DELETE /orders/{id}`
async fn cancel<P: Orders>(
    State((orders, outbox)): State<(P, Outbox)>,
    Path(order_id): Path<i64>,
) -> Result<StatusCode, StatusCode> {
    let is_found = orders.cancel(&outbox, order_id).await.map_err(trouble)?;
    Ok(if is_found { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
}

async fn serve(orders: impl Orders, store: impl Store, address: &str) -> Result<()> {
    store.migrate().await?;
    orders.create().await?;
    let relay = Relay::new(store, Listeners::new().on(thank).on(regret))
        .settings(RelaySettings::one_process());
    let state = (orders, relay.outbox());
    let relay = relay.spawn().await?;

    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, routes(state)).with_graceful_shutdown(shutdown).await?;
    relay.stop().await?; // after the last request: what it emitted is finished, or kept
    println!("stopped");
    Ok(())
}

fn routes<P: Orders>(state: (P, Outbox)) -> Router {
    let routes = Router::new().route("/orders", post(place::<P>));
    routes.route("/orders/{id}", delete(cancel::<P>)).with_state(state)
}

async fn thank(order: OrderPlaced, _: Cx) -> Result<(), Failure> {
    println!("order {}: thanks to {}", order.order_id, order.email);
    Ok(())
}

async fn regret(OrderCancelled { order_id }: OrderCancelled, _: Cx) -> Result<(), Failure> {
    println!("order {order_id}: a pity");
    Ok(())
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    args::main().await
}
