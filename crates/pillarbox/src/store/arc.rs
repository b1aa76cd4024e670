//! A shared store is a store.

/// Implements a facet for `Arc<S>`, where `S` has it. Takes the methods of the facet.
macro_rules! for_arc {
    ($facet:ident {
        $(fn $get:ident(&self) -> $value:ty;)*
        $(async fn $method:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*
    }) => {
        #[async_trait]
        impl<S: $facet + ?Sized> $facet for std::sync::Arc<S> {
            $(fn $get(&self) -> $value {
                (**self).$get()
            })*

            $(async fn $method(&self $(, $argument: $type)*) -> $answer {
                (**self).$method($($argument),*).await
            })*
        }
    };
}

pub(super) use for_arc;
