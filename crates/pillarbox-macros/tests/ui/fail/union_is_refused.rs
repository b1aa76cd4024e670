use pillarbox::Event;

#[derive(Event)]
#[event("order.changed")]
union OrderChanged {
    placed: u8,
    paid: u8,
}

fn main() {}
