fn main() {
    println!("cargo::rustc-check-cfg=cfg(shuttle)");
    println!("cargo::rustc-cfg=shuttle");
}
