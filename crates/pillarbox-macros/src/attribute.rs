//! Parses `#[event(…)]` on a struct and on its fields.

use quote::ToTokens;
use syn::{
    Attribute, DeriveInput, Error, Expr, Field, Fields, Ident, Lit, LitStr, Member, Meta, Result,
    Token, Type,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

// The limits of `EventType` and `AggregateType`, checked here too so that the error has a span.
const NAME_LIMIT: usize = 128;
const AGGREGATE_LIMIT: usize = 64;

const EXAMPLE: &str = "#[event(\"order.placed\")]";
const STRUCT_SETTINGS: &str = "`version = 1`, `aggregate = \"order\"` and `free`";
const FIELD_MARKS: &str = "`id`, `key` or `tenant`";

/// The attribute on the struct.
pub(crate) struct Container {
    pub(crate) name: LitStr,
    pub(crate) settings: Settings,
}

impl Container {
    pub(crate) fn read(input: &DeriveInput) -> Result<Self> {
        let attribute = only_attribute(input)?;
        let items = items(attribute)?;
        let (name, settings) = both(read_name(attribute, &items), Settings::read(&items))?;
        Ok(Self { name, settings })
    }
}

/// The settings after the name.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) version: Option<u32>,
    pub(crate) aggregate: Option<LitStr>,
    pub(crate) free: Option<Ident>,
}

impl Settings {
    fn read(items: &[Item]) -> Result<Self> {
        let mut settings = Self::default();
        all(items.iter().map(|item| settings.take(item)))?;
        Ok(settings)
    }

    fn take(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Name(_) => Ok(()),
            Item::Word(word) if word == "free" => put(&mut self.free, word, word.clone()),
            Item::Setting(word, value) if word == "version" => {
                put(&mut self.version, word, version(value)?)
            }
            Item::Setting(word, value) if word == "aggregate" => {
                put(&mut self.aggregate, word, aggregate(value)?)
            }
            Item::Word(word) | Item::Setting(word, _) => Err(not_for_a_struct(word)),
        }
    }
}

/// The marked fields.
#[derive(Default)]
pub(crate) struct Marks<'a> {
    pub(crate) id: Option<Mark<'a>>,
    pub(crate) key: Option<Mark<'a>>,
    pub(crate) tenant: Option<Mark<'a>>,
}

/// A field with a mark.
pub(crate) struct Mark<'a> {
    pub(crate) word: Ident,
    pub(crate) member: Member,
    pub(crate) ty: &'a Type,
}

impl<'a> Marks<'a> {
    pub(crate) fn read(fields: &'a Fields) -> Result<Self> {
        let mut marks = Self::default();
        let pairs = fields.members().zip(fields);
        all(pairs.map(|(member, field)| marks.take_field(&member, field)))?;
        Ok(marks)
    }

    fn take_field(&mut self, member: &Member, field: &'a Field) -> Result<()> {
        all(own(&field.attrs).map(|attribute| self.take_attribute(attribute, member, field)))
    }

    fn take_attribute(
        &mut self,
        attribute: &Attribute,
        member: &Member,
        field: &'a Field,
    ) -> Result<()> {
        let items = items(attribute)?;
        if items.is_empty() {
            return Err(missing_mark(attribute));
        }
        all(items.iter().map(|item| self.take(item, member, &field.ty)))
    }

    fn take(&mut self, item: &Item, member: &Member, ty: &'a Type) -> Result<()> {
        let Item::Word(word) = item else {
            return Err(not_for_a_field(item));
        };
        let mark = Mark { word: word.clone(), member: member.clone(), ty };
        match word.to_string().as_str() {
            "id" => put(&mut self.id, word, mark.required()?),
            "key" => put(&mut self.key, word, mark.required()?),
            "tenant" => put(&mut self.tenant, word, mark),
            _ => Err(not_for_a_field(item)),
        }
    }
}

impl Mark<'_> {
    fn required(self) -> Result<Self> {
        if !is_option(self.ty) {
            return Ok(self);
        }
        let word = &self.word;
        let advice = "mark a field that always has a value";
        let message = format!("the `{word}` of an event cannot be an `Option`; {advice}");
        Err(Error::new_spanned(self.ty, message))
    }
}

/// One entry between the parentheses.
enum Item {
    Name(LitStr),
    Word(Ident),
    Setting(Ident, Expr),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Lit) {
            return input.parse().map(Self::Name);
        }
        // Accepts keywords, so that `type = "…"` is reported as an unknown setting.
        let word = input.call(Ident::parse_any)?;
        if !input.peek(Token![=]) {
            return Ok(Self::Word(word));
        }
        input.parse::<Token![=]>()?;
        Ok(Self::Setting(word, input.parse()?))
    }
}

fn items(attribute: &Attribute) -> Result<Vec<Item>> {
    if matches!(attribute.meta, Meta::Path(_)) {
        return Ok(Vec::new());
    }
    let items = attribute.parse_args_with(Punctuated::<Item, Token![,]>::parse_terminated)?;
    Ok(items.into_iter().collect())
}

fn own(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("event"))
}

fn only_attribute(input: &DeriveInput) -> Result<&Attribute> {
    let mut attributes = own(&input.attrs);
    let Some(first) = attributes.next() else {
        return Err(missing_name(&input.ident));
    };
    let Some(second) = attributes.next() else {
        return Ok(first);
    };
    let message = "a struct takes one `#[event(…)]`; join this one with the first";
    Err(Error::new_spanned(second, message))
}

fn read_name(attribute: &Attribute, items: &[Item]) -> Result<LitStr> {
    let mut names = items.iter().filter_map(|item| match item {
        Item::Name(name) => Some(name),
        Item::Word(_) | Item::Setting(..) => None,
    });
    let Some(name) = names.next() else {
        return Err(missing_name(attribute));
    };
    if let Some(second) = names.next() {
        let message = "an event has one name, this is a second one";
        return Err(Error::new_spanned(second, message));
    }
    if !matches!(items.first(), Some(Item::Name(_))) {
        let message = format!("the event's name comes first: `{EXAMPLE}`");
        return Err(Error::new_spanned(name, message));
    }
    checked(name, "event's name", NAME_LIMIT)
}

fn version(value: &Expr) -> Result<u32> {
    let number = match literal(value) {
        Some(Lit::Int(number)) => number.base10_parse().ok(),
        _ => None,
    };
    let message = "the version is a number from 1 to 4294967295: `version = 1`";
    let positive = number.filter(|number| *number > 0);
    positive.ok_or_else(|| Error::new_spanned(value, message))
}

fn aggregate(value: &Expr) -> Result<LitStr> {
    let Some(Lit::Str(text)) = literal(value) else {
        let message = "the aggregate is a string literal: `aggregate = \"order\"`";
        return Err(Error::new_spanned(value, message));
    };
    checked(text, "aggregate", AGGREGATE_LIMIT)
}

fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(literal) => Some(&literal.lit),
        // A `$literal` of `macro_rules!` arrives in an invisible group.
        Expr::Group(group) => literal(&group.expr),
        _ => None,
    }
}

fn checked(literal: &LitStr, what: &str, limit: usize) -> Result<LitStr> {
    let text = literal.value();
    let length = text.chars().count();
    let message = if text.is_empty() {
        format!("the {what} is empty")
    } else if length > limit {
        format!("the {what} has {length} characters; {limit} is the most")
    } else if text.chars().any(char::is_control) {
        format!("the {what} has a control character in it")
    } else {
        return Ok(literal.clone());
    };
    Err(Error::new_spanned(literal, message))
}

/// Compares the last path segment: a macro cannot resolve types.
pub(crate) fn is_option(ty: &Type) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == "Option"),
        // A `$type` of `macro_rules!` arrives in an invisible group.
        Type::Group(group) => is_option(&group.elem),
        Type::Paren(paren) => is_option(&paren.elem),
        _ => false,
    }
}

fn put<T>(slot: &mut Option<T>, word: &Ident, value: T) -> Result<()> {
    if slot.is_some() {
        return Err(Error::new_spanned(word, format!("`{word}` is given twice")));
    }
    *slot = Some(value);
    Ok(())
}

fn missing_name(span: impl ToTokens) -> Error {
    let message = format!("the event has no name; write `{EXAMPLE}` on the struct");
    Error::new_spanned(span, message)
}

fn missing_mark(span: impl ToTokens) -> Error {
    Error::new_spanned(span, format!("a field takes {FIELD_MARKS}"))
}

fn not_for_a_struct(word: &Ident) -> Error {
    let message = match word.to_string().as_str() {
        "version" => "`version` takes a number: `version = 1`".to_owned(),
        "aggregate" => "`aggregate` takes a string: `aggregate = \"order\"`".to_owned(),
        "free" => "`free` takes no value".to_owned(),
        "id" | "key" | "tenant" => format!("`{word}` marks a field, not the struct"),
        _ => format!("unknown setting `{word}`; after its name an event takes {STRUCT_SETTINGS}"),
    };
    Error::new_spanned(word, message)
}

fn not_for_a_field(item: &Item) -> Error {
    let word = match item {
        Item::Name(name) => return missing_mark(name),
        Item::Word(word) | Item::Setting(word, _) => word,
    };
    let message = match word.to_string().as_str() {
        "id" | "key" | "tenant" => format!("`{word}` takes no value"),
        "version" | "aggregate" | "free" => format!("`{word}` belongs on the struct"),
        _ => format!("unknown mark `{word}`; a field takes {FIELD_MARKS}"),
    };
    Error::new_spanned(word, message)
}

/// Returns both values, or the errors of both.
pub(crate) fn both<A, B>(first: Result<A>, second: Result<B>) -> Result<(A, B)> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(mut error), Err(another)) => {
            error.combine(another);
            Err(error)
        }
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// Collects the errors of all results.
fn all(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    let errors = results.filter_map(Result::err);
    let joined = errors.reduce(|mut sum, next| {
        sum.combine(next);
        sum
    });
    joined.map_or(Ok(()), Err)
}
