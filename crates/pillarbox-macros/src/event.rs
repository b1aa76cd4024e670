//! From a struct and its attributes to `impl Event`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Fields, Result, spanned::Spanned};

use crate::attribute::{Container, Mark, Marks, both, is_option};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields(input)?;
    let (container, marks) = both(Container::read(input), Marks::read(fields))?;
    both(id_has_aggregate(&container, &marks), free_has_no_key(&container, &marks))?;
    Ok(assemble(input, &container, &marks))
}

fn fields(input: &DeriveInput) -> Result<&Fields> {
    let (keyword, advice) = match &input.data {
        Data::Struct(data) => return Ok(&data.fields),
        Data::Enum(data) => (data.enum_token.span, "make each variant a struct of its own"),
        Data::Union(data) => (data.union_token.span, "make it a struct"),
    };
    let rule = "derive(Event) works on structs: one struct is one event type";
    Err(Error::new(keyword, format!("{rule}; {advice}")))
}

fn id_has_aggregate(container: &Container, marks: &Marks<'_>) -> Result<()> {
    let Some(id) = &marks.id else { return Ok(()) };
    if container.settings.aggregate.is_some() {
        return Ok(());
    }
    let advice = "add `aggregate = \"…\"` to the struct's `#[event(…)]`";
    Err(Error::new_spanned(&id.word, format!("`id` needs an aggregate; {advice}")))
}

fn free_has_no_key(container: &Container, marks: &Marks<'_>) -> Result<()> {
    let (Some(_), Some(key)) = (&container.settings.free, &marks.key) else {
        return Ok(());
    };
    let contradiction = "a `free` event is delivered in no particular order, so it has no `key`";
    Err(Error::new_spanned(&key.word, format!("{contradiction}; remove one of the two")))
}

fn assemble(input: &DeriveInput, container: &Container, marks: &Marks<'_>) -> TokenStream {
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let constants = constants(container);
    let aggregate_id = marks.id.as_ref().map(aggregate_id);
    let key = key(container, marks);
    let tenant = marks.tenant.as_ref().map(tenant);
    quote! {
        #[automatically_derived]
        impl #impl_generics ::pillarbox::Event for #ident #type_generics #where_clause {
            #constants
            #aggregate_id
            #key
            #tenant
        }
    }
}

fn constants(container: &Container) -> TokenStream {
    let name = &container.name;
    let version = container.settings.version.iter();
    let aggregate = container.settings.aggregate.iter();
    quote! {
        const TYPE: ::pillarbox::EventType = ::pillarbox::EventType::from_static(#name);
        #(const VERSION: u32 = #version;)*
        #(const AGGREGATE: ::pillarbox::AggregateType =
            ::pillarbox::AggregateType::from_static(#aggregate);)*
    }
}

fn aggregate_id(id: &Mark<'_>) -> TokenStream {
    let text = some_text(id);
    quote! {
        fn aggregate_id(&self) -> ::core::option::Option<::std::string::String> {
            #text
        }
    }
}

fn key(container: &Container, marks: &Marks<'_>) -> Option<TokenStream> {
    let given = marks.key.as_ref().map(text).map(|text| quote!(Given(#text)));
    let free = container.settings.free.as_ref().map(|_| quote!(Free));
    let key = given.or(free)?;
    Some(quote! {
        fn key(&self) -> ::pillarbox::Key {
            ::pillarbox::Key::#key
        }
    })
}

fn tenant(tenant: &Mark<'_>) -> TokenStream {
    let text = if is_option(tenant.ty) { optional_text(tenant) } else { some_text(tenant) };
    quote! {
        fn tenant(&self) -> ::core::option::Option<::std::string::String> {
            #text
        }
    }
}

fn some_text(mark: &Mark<'_>) -> TokenStream {
    let text = text(mark);
    quote!(::core::option::Option::Some(#text))
}

fn text(mark: &Mark<'_>) -> TokenStream {
    let member = &mark.member;
    quote_spanned!(place(mark)=> ::std::string::ToString::to_string(&self.#member))
}

fn optional_text(mark: &Mark<'_>) -> TokenStream {
    let member = &mark.member;
    quote_spanned! {place(mark)=>
        ::core::option::Option::as_ref(&self.#member).map(::std::string::ToString::to_string)
    }
}

/// Where the field's type is written, so that a type without `Display` is underlined there.
///
/// Names still resolve as at the derive: in a struct written by `macro_rules!`, `self` would not.
fn place(mark: &Mark<'_>) -> Span {
    Span::call_site().located_at(mark.ty.span())
}

#[cfg(test)]
mod tests {
    use syn::{DeriveInput, parse_quote};

    use super::expand;

    fn mistakes(input: &DeriveInput) -> Vec<String> {
        let Err(error) = expand(input) else {
            return Vec::new();
        };
        error.into_iter().map(|mistake| mistake.to_string()).collect()
    }

    #[test]
    fn limits_count_characters_and_not_bytes() {
        let (name, aggregate) = ("ü".repeat(128), "ü".repeat(64));

        let mistakes = mistakes(&parse_quote! {
            #[event(#name, aggregate = #aggregate)]
            struct Longest;
        });

        assert!(mistakes.is_empty(), "{mistakes:?}");
    }

    #[test]
    fn one_character_too_many_is_refused() {
        let (name, aggregate) = ("n".repeat(129), "a".repeat(65));

        let mistakes = mistakes(&parse_quote! {
            #[event(#name, aggregate = #aggregate)]
            struct TooLong;
        });

        assert_eq!(
            mistakes,
            [
                "the event's name has 129 characters; 128 is the most",
                "the aggregate has 65 characters; 64 is the most",
            ]
        );
    }

    #[test]
    fn mistakes_on_the_struct_and_on_fields_are_told_together() {
        let mistakes = mistakes(&parse_quote! {
            #[event(version = 0, loud)]
            struct Muddle {
                #[event(ident)]
                a: u8,
                #[event(key)]
                b: Option<u8>,
            }
        });

        assert_eq!(mistakes.len(), 5, "{mistakes:?}");
    }
}
