"""The client that awaits. Made from `_async` by sdks/generate. Do not edit."""
