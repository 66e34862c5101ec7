//! The HTML tree as html5ever builds it, stored in one vector. Building, walking and dropping it need no recursion.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    rc::Rc,
};

use html5ever::{
    Attribute, ExpandedName, QualName,
    buffer_queue::BufferQueue,
    interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink},
    local_name, ns,
    tendril::StrTendril,
    tokenizer::{TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts},
    tree_builder::{TreeBuilder, TreeBuilderOpts},
};

use super::{MAX_ATTRIBUTES, MAX_HTML_BYTES, MAX_NESTING, MAX_NODES, MAX_TAGS};

/// Bytes that the tokenizer gets between two checks of the limits.
const CHUNK: usize = 4 * 1024;
/// Maximum separators without a token in between. The tokenizer compares each attribute of a tag with all attributes
/// before it, so its time grows with the square.
const MAX_SEPARATORS: usize = 5_000;

/// Maximum attributes of a tree. Browsers reopen some elements with all their attributes.
const MAX_TREE_ATTRIBUTES: usize = 200_000;

/// The index of a node in its tree.
pub(super) type NodeId = usize;

/// The document itself.
pub(super) const ROOT: NodeId = 0;

/// The content of a node.
#[derive(Debug)]
pub(super) enum NodeContent {
    /// The document, or the content of a `template`.
    Document,
    Element(Rc<QualName>, Vec<Attribute>),
    Text(String),
    Comment(String),
}

/// A node and its neighbours.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) content: NodeContent,
    pub(super) parent: Option<NodeId>,
    pub(super) previous: Option<NodeId>,
    pub(super) next: Option<NodeId>,
    pub(super) first: Option<NodeId>,
    pub(super) last: Option<NodeId>,
    depth: usize,
}

/// A page as a tree.
#[derive(Debug)]
pub(super) struct HtmlTree {
    nodes: Vec<Node>,
    /// Whether browsers render the page in quirks mode, for lack of a modern doctype.
    pub(super) quirks: bool,
    /// Whether a limit was reached.
    pub(super) is_truncated: bool,
    /// Whether the part that was cut off may hold style sheets. They could hide anything.
    pub(super) styles_truncated: bool,
    /// Number of elements that lost their attributes. Selectors could refer to them.
    pub(super) overfull_elements: usize,
    attributes: usize,
}

impl HtmlTree {
    /// Parses a page. Content beyond a limit is left out.
    pub(super) fn parse(html: &str) -> Self {
        let end = html.floor_char_boundary(MAX_HTML_BYTES);
        let sink = TreeBuilderSink {
            tree: RefCell::new(Self::empty()),
            limit_reached: Cell::new(false),
            overfull_elements: Cell::new(0),
        };
        let options = TreeBuilderOpts { scripting_enabled: true, ..TreeBuilderOpts::default() };
        let limited =
            LimitedTokenSink { builder: TreeBuilder::new(sink, options), tags: Cell::new(0), tokens: Cell::new(0) };
        let tokenizer = Tokenizer::new(limited, TokenizerOpts::default());
        let read = feed(&tokenizer, &html[..end]);
        if read == html.len() {
            tokenizer.end();
        }
        let sink = tokenizer.sink.builder.sink;
        let mut tree = sink.tree.into_inner();
        let rest = html[read..].to_ascii_lowercase();
        tree.is_truncated = read < html.len() || sink.limit_reached.get() || sink.overfull_elements.get() > 0;
        tree.overfull_elements = sink.overfull_elements.get();
        tree.styles_truncated = rest.contains("<style") || rest.contains("<link");
        tree
    }

    fn empty() -> Self {
        Self {
            nodes: vec![Node::new(NodeContent::Document)],
            quirks: false,
            is_truncated: false,
            styles_truncated: false,
            overfull_elements: 0,
            attributes: 0,
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The local name of an element, in any namespace. Empty for other nodes.
    pub(super) fn name(&self, id: NodeId) -> &str {
        match &self.nodes[id].content {
            NodeContent::Element(name, _) => &name.local,
            _ => "",
        }
    }

    /// Whether the node is an HTML element, not an SVG or MathML one.
    pub(super) fn is_html(&self, id: NodeId) -> bool {
        matches!(&self.nodes[id].content, NodeContent::Element(name, _) if name.ns == ns!(html))
    }

    pub(super) fn attribute(&self, id: NodeId, name: &str) -> Option<&str> {
        let NodeContent::Element(_, attributes) = &self.nodes[id].content else { return None };
        attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
    }

    pub(super) fn is_element(&self, id: NodeId) -> bool {
        matches!(self.nodes[id].content, NodeContent::Element(..))
    }

    /// Children in document order.
    pub(super) fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(self.nodes[id].first, |child| self.nodes[*child].next)
    }

    /// The next node in document order, and the number of nodes that end before it. `None` after the last node.
    pub(super) fn next_in_order(&self, id: NodeId) -> (Option<NodeId>, usize) {
        if let Some(child) = self.nodes[id].first {
            return (Some(child), 0);
        }
        let (mut at, mut ended) = (id, 0);
        loop {
            ended += 1;
            if let Some(next) = self.nodes[at].next {
                return (Some(next), ended);
            }
            match self.nodes[at].parent {
                Some(parent) => at = parent,
                None => return (None, ended),
            }
        }
    }

    /// The next node in document order that is not inside this one.
    pub(super) fn next_outside(&self, id: NodeId) -> Option<NodeId> {
        std::iter::successors(Some(id), |at| self.nodes[*at].parent).find_map(|at| self.nodes[at].next)
    }

    /// The text of a node's direct text children.
    pub(super) fn own_text(&self, id: NodeId) -> String {
        self.children(id)
            .filter_map(|child| match &self.nodes[child].content {
                NodeContent::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn add(&mut self, content: NodeContent) -> NodeId {
        self.nodes.push(Node::new(content));
        self.nodes.len() - 1
    }

    fn detach(&mut self, id: NodeId) {
        let Node { parent, previous, next, .. } = self.nodes[id];
        match (previous, parent) {
            (Some(previous), _) => self.nodes[previous].next = next,
            (None, Some(parent)) => self.nodes[parent].first = next,
            _ => {}
        }
        match (next, parent) {
            (Some(next), _) => self.nodes[next].previous = previous,
            (None, Some(parent)) => self.nodes[parent].last = previous,
            _ => {}
        }
        let node = &mut self.nodes[id];
        (node.parent, node.previous, node.next) = (None, None, None);
    }

    /// Inserts a detached node under a parent, before a sibling or as the last child.
    fn insert(&mut self, id: NodeId, parent: NodeId, before: Option<NodeId>) {
        let previous = before.map_or(self.nodes[parent].last, |before| self.nodes[before].previous);
        let depth = self.nodes[parent].depth + 1;
        let node = &mut self.nodes[id];
        (node.parent, node.previous, node.next, node.depth) = (Some(parent), previous, before, depth);
        match previous {
            Some(previous) => self.nodes[previous].next = Some(id),
            None => self.nodes[parent].first = Some(id),
        }
        match before {
            Some(before) => self.nodes[before].previous = Some(id),
            None => self.nodes[parent].last = Some(id),
        }
    }

    fn insert_text(&mut self, text: &str, parent: NodeId, before: Option<NodeId>) {
        let previous = before.map_or(self.nodes[parent].last, |before| self.nodes[before].previous);
        if let Some(previous) = previous
            && let NodeContent::Text(existing) = &mut self.nodes[previous].content
        {
            existing.push_str(text);
            return;
        }
        let id = self.add(NodeContent::Text(text.to_owned()));
        self.insert(id, parent, before);
    }
}

impl Node {
    fn new(content: NodeContent) -> Self {
        Self { content, parent: None, previous: None, next: None, first: None, last: None, depth: 0 }
    }
}

/// Feeds a page to the tokenizer in chunks. Returns the number of bytes consumed: all of them, or up to the end of the
/// chunk that reached a limit.
fn feed(tokenizer: &Tokenizer<LimitedTokenSink>, html: &str) -> usize {
    let queue = BufferQueue::default();
    let (mut consumed, mut separators, mut tokens) = (0, 0, 0);
    while consumed < html.len() {
        let end = html.ceil_char_boundary((consumed + CHUNK).min(html.len()));
        let chunk = &html[consumed..end];
        queue.push_back(StrTendril::from_slice(chunk));
        // The tokenizer stops feeding after a script. Scripts never run, so feeding resumes at once.
        while !queue.is_empty() {
            drop(tokenizer.feed(&queue));
        }
        if tokens == tokenizer.sink.tokens.get() {
            separators += chunk.bytes().filter(|byte| b" \t\n\x0c\r/\"'".contains(byte)).count();
        } else {
            separators = 0;
        }
        tokens = tokenizer.sink.tokens.get();
        consumed = end;
        if separators > MAX_SEPARATORS || tokenizer.sink.is_full() {
            tokenizer.sink.builder.sink.limit_reached.set(true);
            break;
        }
    }
    consumed
}

/// Forwards tokens to the tree builder until a limit is reached.
struct LimitedTokenSink {
    builder: TreeBuilder<NodeHandle, TreeBuilderSink>,
    tags: Cell<usize>,
    tokens: Cell<usize>,
}

impl LimitedTokenSink {
    fn is_full(&self) -> bool {
        self.builder.sink.limit_reached.get()
    }
}

impl TokenSink for LimitedTokenSink {
    type Handle = NodeHandle;

    fn process_token(&self, mut token: Token, line: u64) -> TokenSinkResult<NodeHandle> {
        self.tokens.set(self.tokens.get() + usize::from(!matches!(token, Token::ParseError(_))));
        if let Token::TagToken(tag) = &mut token
            && tag.kind == TagKind::StartTag
        {
            self.builder.sink.limit_attributes(&mut tag.attrs);
            self.tags.set(self.tags.get() + 1);
            if self.tags.get() > MAX_TAGS {
                self.builder.sink.limit_reached.set(true);
            }
        }
        if self.is_full() { TokenSinkResult::Continue } else { self.builder.process_token(token, line) }
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// The tree sink for html5ever.
struct TreeBuilderSink {
    tree: RefCell<HtmlTree>,
    /// Whether a limit was reached, so that no more tokens are processed.
    limit_reached: Cell<bool>,
    overfull_elements: Cell<usize>,
}

/// A node, with its name if it is an element.
#[derive(Clone)]
struct NodeHandle {
    id: NodeId,
    name: Option<Rc<QualName>>,
}

impl NodeHandle {
    fn unnamed(id: NodeId) -> Self {
        Self { id, name: None }
    }
}

/// The name of a node that is not an element. html5ever never asks for it.
const NO_NAME: ExpandedName<'static> = ExpandedName { ns: &ns!(), local: &local_name!("") };

impl TreeBuilderSink {
    fn insert_child(&self, parent: NodeId, before: Option<NodeId>, child: NodeOrText<NodeHandle>) {
        let mut tree = self.tree.borrow_mut();
        match child {
            NodeOrText::AppendNode(child) => {
                tree.detach(child.id);
                tree.insert(child.id, parent, before);
                if tree.nodes[child.id].depth > MAX_NESTING {
                    self.limit_reached.set(true);
                }
            }
            NodeOrText::AppendText(text) => tree.insert_text(&text, parent, before),
        }
    }

    /// Hides an element with too many attributes and drops them, because each look-up walks all of them.
    fn limit_attributes(&self, attributes: &mut Vec<Attribute>) {
        if attributes.len() > MAX_ATTRIBUTES {
            let name = QualName::new(None, ns!(), local_name!("style"));
            *attributes = vec![Attribute { name, value: "display:none!important".into() }];
            self.overfull_elements.set(self.overfull_elements.get() + 1);
        }
    }

    fn add(&self, content: NodeContent) -> NodeId {
        let mut tree = self.tree.borrow_mut();
        if tree.nodes.len() >= MAX_NODES {
            self.limit_reached.set(true);
        }
        tree.add(content)
    }
}

impl TreeSink for TreeBuilderSink {
    type Handle = NodeHandle;
    type Output = Self;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> Self {
        self
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> NodeHandle {
        NodeHandle::unnamed(ROOT)
    }

    fn elem_name<'a>(&'a self, target: &'a NodeHandle) -> ExpandedName<'a> {
        target.name.as_ref().map_or(NO_NAME, |name| name.expanded())
    }

    fn create_element(&self, name: QualName, attributes: Vec<Attribute>, _: ElementFlags) -> NodeHandle {
        let name = Rc::new(name);
        let total = self.tree.borrow().attributes + attributes.len();
        self.tree.borrow_mut().attributes = total;
        if total > MAX_TREE_ATTRIBUTES {
            self.limit_reached.set(true);
        }
        NodeHandle { id: self.add(NodeContent::Element(Rc::clone(&name), attributes)), name: Some(name) }
    }

    fn create_comment(&self, text: StrTendril) -> NodeHandle {
        NodeHandle::unnamed(self.add(NodeContent::Comment(text.to_string())))
    }

    fn create_pi(&self, _: StrTendril, data: StrTendril) -> NodeHandle {
        NodeHandle::unnamed(self.add(NodeContent::Comment(data.to_string())))
    }

    fn append(&self, parent: &NodeHandle, child: NodeOrText<NodeHandle>) {
        self.insert_child(parent.id, None, child);
    }

    fn append_based_on_parent_node(&self, element: &NodeHandle, previous: &NodeHandle, child: NodeOrText<NodeHandle>) {
        let parent = self.tree.borrow().nodes[element.id].parent;
        match parent {
            Some(parent) => self.insert_child(parent, Some(element.id), child),
            None => self.insert_child(previous.id, None, child),
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    /// A template's content is stored as its children. The browser style sheet hides templates.
    fn get_template_contents(&self, target: &NodeHandle) -> NodeHandle {
        target.clone()
    }

    fn same_node(&self, one: &NodeHandle, other: &NodeHandle) -> bool {
        one.id == other.id
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.tree.borrow_mut().quirks = mode == QuirksMode::Quirks;
    }

    fn append_before_sibling(&self, sibling: &NodeHandle, child: NodeOrText<NodeHandle>) {
        let parent = self.tree.borrow().nodes[sibling.id].parent;
        if let Some(parent) = parent {
            self.insert_child(parent, Some(sibling.id), child);
        }
    }

    fn add_attrs_if_missing(&self, target: &NodeHandle, added: Vec<Attribute>) {
        let mut tree = self.tree.borrow_mut();
        if let NodeContent::Element(_, attributes) = &mut tree.nodes[target.id].content {
            for attribute in added {
                if !attributes.iter().any(|known| known.name == attribute.name) {
                    attributes.push(attribute);
                }
            }
            self.limit_attributes(attributes);
            // Each tag may add more, so no more tags are processed.
            self.limit_reached.set(self.limit_reached.get() || self.overfull_elements.get() > 0);
        }
    }

    fn remove_from_parent(&self, target: &NodeHandle) {
        self.tree.borrow_mut().detach(target.id);
    }

    fn reparent_children(&self, node: &NodeHandle, new_parent: &NodeHandle) {
        let mut tree = self.tree.borrow_mut();
        while let Some(child) = tree.nodes[node.id].first {
            tree.detach(child);
            tree.insert(child, new_parent.id, None);
        }
    }
}
