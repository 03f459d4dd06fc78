"""Workflows of nodes, some of which stream, that run as skills or by themselves."""

from .agent_config import AgentConfig, ModelProvider
from .agent_node import AgentNode
from .agent_streaming_node import AgentStreamingNode
from .chat import ChatMessage, OpenAIChatSchema
from .concurrent_node import ConcurrentNode
from .context import TaskContext
from .models import replace_models
from .node import Node
from .patches import apply_patch, make_patch
from .router_node import RouterNode
from .schema import NodeConfig, WorkflowSchema
from .streaming_node import StreamingNode, StreamItem
from .workflow import Workflow

__all__ = [
    "AgentConfig",
    "AgentNode",
    "AgentStreamingNode",
    "ChatMessage",
    "ConcurrentNode",
    "ModelProvider",
    "Node",
    "NodeConfig",
    "OpenAIChatSchema",
    "RouterNode",
    "StreamItem",
    "StreamingNode",
    "TaskContext",
    "Workflow",
    "WorkflowSchema",
    "apply_patch",
    "make_patch",
    "replace_models",
]
