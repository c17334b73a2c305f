"""The state graph of an instance, walked on a real implementation."""
