"""The asyncio client. Generated from `_async` by sdks/generate. Do not edit."""
