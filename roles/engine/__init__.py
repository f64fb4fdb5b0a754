"""The engine. Each package has its own public interface; docs/architecture.md describes the direction of imports."""
